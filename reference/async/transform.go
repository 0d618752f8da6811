package async

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime/multipart"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Transform rewrites the body of requests of some providers (AP-XFORM, spec/async-processor.md §6). The only kind is gcs_uri_multipart:
// a JSON body with a signed URL becomes a form.
type Transform struct {
	Name      string
	Providers []string // values of the metadata key "provider"
}

// The fields of a payload that the transform knows.
const (
	fieldURI    = "gcs_uri"
	fieldInline = "file_base64"
)

// transform is the body that is sent in place of the payload, with its content type; nil if no transform is meant. The first one that
// handles the message wins.
func (m *Machine) transform(msg *message) (body []byte, contentType string, err error) {
	r := &msg.Envelope.Request
	for _, t := range m.cfg.Transforms {
		if !slices.Contains(t.Providers, r.Metadata["provider"]) {
			continue
		}
		fields, err := fieldsOf(r.Payload)
		if err != nil {
			return nil, "", fmt.Errorf("transform %s: payload: %w", t.Name, err)
		}
		if fields.text(fieldInline) != "" {
			return nil, "", fmt.Errorf("transform %s: %s: inline media cannot be sent this way, use %s", t.Name, fieldInline, fieldURI)
		}
		uri := fields.text(fieldURI)
		if uri == "" {
			continue
		}
		if end, ok := expiry(uri); ok && end <= r.Deadline {
			return nil, "", fmt.Errorf("transform %s: the signed URL expires at %d, not after the deadline %d", t.Name, end, r.Deadline)
		}
		body, contentType, err = form(uri, fields, fmt.Sprintf("%016x%016x", m.rng.Uint64(), m.rng.Uint64()))
		if err != nil {
			return nil, "", fmt.Errorf("transform %s: %w", t.Name, err)
		}
		return body, contentType, nil
	}
	return nil, "", nil
}

// payloadField is one field of a JSON object; payloadFields keep its order.
type payloadField struct {
	name  string
	value json.RawMessage
}

type payloadFields []payloadField

func fieldsOf(payload json.RawMessage) (payloadFields, error) {
	d := json.NewDecoder(bytes.NewReader(payload))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	var out payloadFields
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		f := payloadField{}
		f.name, _ = t.(string)
		if err := d.Decode(&f.value); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// text is a string field; "" if there is none.
func (fs payloadFields) text(name string) string {
	s := ""
	for _, f := range fs {
		if f.name == name {
			_ = json.Unmarshal(f.value, &s) // another type is no text
		}
	}
	return s
}

// form writes the URL first and then the other fields: strings as they are, null as nothing, everything else as JSON (AP-XFORM-03).
func form(uri string, fields payloadFields, boundary string) (body []byte, contentType string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	errs := []error{w.SetBoundary(boundary), w.WriteField("url", uri)}
	for _, f := range fields {
		if f.name == fieldURI || f.name == fieldInline {
			continue
		}
		value := string(f.value)
		switch {
		case value == "null":
			value = ""
		case value[0] == '"':
			errs = append(errs, json.Unmarshal(f.value, &value))
		}
		errs = append(errs, w.WriteField(f.name, value))
	}
	errs = append(errs, w.Close())
	return b.Bytes(), w.FormDataContentType(), errors.Join(errs...)
}

// expiry reads when a signed URL ends, in Unix seconds, from the parameters of either version of signatures. What cannot be read says
// nothing (AP-XFORM-05).
func expiry(signed string) (unix int64, ok bool) {
	u, err := url.Parse(signed)
	if err != nil {
		return 0, false
	}
	q := u.Query()
	if from, err := time.Parse("20060102T150405Z", q.Get("X-Goog-Date")); err == nil {
		seconds, err := strconv.ParseInt(q.Get("X-Goog-Expires"), 10, 64)
		return from.Unix() + seconds, err == nil
	}
	unix, err = strconv.ParseInt(q.Get("Expires"), 10, 64)
	return unix, err == nil
}
