package async

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/llm-weir/weir/harness/wire"
)

// Outgoing is an attempt to be made: a POST of the request's payload, or of what a transform made of it.
type Outgoing struct {
	URL     string
	Body    []byte   // nil: the payload as it is
	Headers []Header // sorted by name, each name once in any letter case
}

// Header is one HTTP header; Name is in lower case.
type Header struct{ Name, Value string }

// Header names that the processor uses beside those of the picker's contract.
const (
	HeaderPriority    = "x-gateway-priority"
	headerContentType = "content-type"
)

// connectionHeaders belong to the connection and not to the request; a message cannot set them.
var connectionHeaders = []string{"host", "content-length", "transfer-encoding", "connection", "upgrade", "trailer", "te", "keep-alive",
	"proxy-connection"}

// fairnessLimit is the longest tenant identity that is stamped, in bytes (AP-MERGE-05).
const fairnessLimit = 256

// headers is a set by lower-case name.
type headers map[string]string

func (h headers) set(name, value string) { h[strings.ToLower(name)] = value }

// outgoing builds the attempt of a message: its headers from the lowest precedence to the highest (AP-WIRE-08), its target.
func (m *Machine) outgoing(msg *message) (Outgoing, error) {
	q, r, mc := msg.queue, &msg.Envelope.Request, &m.cfg.Merge
	where := q.cfg.Path
	if r.Endpoint != "" {
		where = r.Endpoint
	}
	to, err := Target(q.cfg.BaseURL, where)
	h := headers{headerContentType: "application/json"}
	if q.cfg.Objective != "" {
		h.set(wire.HeaderObjective, q.cfg.Objective)
	}
	errs := []error{err}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		switch value := r.Headers[name]; {
		case !httpguts.ValidHeaderFieldName(name):
			errs = append(errs, fmt.Errorf("headers: %q is no legal HTTP header name", name))
		case !httpguts.ValidHeaderFieldValue(value):
			errs = append(errs, fmt.Errorf("headers: the value of %q is no legal HTTP header value", name))
		case !slices.Contains(connectionHeaders, strings.ToLower(name)):
			h.set(name, value)
		}
	}
	if tenant := r.Metadata[mc.FairnessAttribute]; mc.FairnessHeader != "" && tenant != "" && len(tenant) <= fairnessLimit &&
		httpguts.ValidHeaderFieldValue(tenant) {
		h.set(mc.FairnessHeader, tenant)
	}
	if mc.Kind == TierPriority {
		if mc.PriorityHeader != "" {
			h.set(mc.PriorityHeader, strconv.Itoa(msg.lane))
		}
		if objective := mc.LaneObjectives[msg.lane]; objective != "" && mc.ObjectiveHeader != "" {
			h.set(mc.ObjectiveHeader, objective)
		}
	}
	body, contentType, err := m.transform(msg)
	errs = append(errs, err)
	if body != nil {
		h.set(headerContentType, contentType)
	}
	out := Outgoing{URL: to, Body: body}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		out.Headers = append(out.Headers, Header{name, h[name]})
	}
	return out, errors.Join(errs...)
}

// Target joins a path, perhaps with a query, to a base URL. Neither a scheme, a host nor dots lead out of the base (AP-WIRE-11).
func Target(base, where string) (string, error) {
	b, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("base URL: %w", err)
	}
	if (b.Scheme != "http" && b.Scheme != "https") || b.Host == "" || b.User != nil || b.RawQuery != "" || b.Fragment != "" {
		return "", fmt.Errorf("base URL %q: expected http://host or https://host, with a path at most", base)
	}
	w, err := url.Parse(where)
	if err != nil {
		return "", fmt.Errorf("endpoint: %w", err)
	}
	if w.Scheme != "" || w.Host != "" || w.User != nil || strings.HasPrefix(where, "//") {
		return "", fmt.Errorf("endpoint %q: expected a path on the queue's gateway", where)
	}
	clean := path.Clean("/" + w.Path)
	if strings.HasSuffix(w.Path, "/") && clean != "/" {
		clean += "/"
	}
	to := url.URL{Scheme: b.Scheme, Host: b.Host, Path: strings.TrimSuffix(b.Path, "/") + clean, RawQuery: w.RawQuery}
	return to.String(), nil
}
