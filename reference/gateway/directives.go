package gateway

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/llm-weir/weir/harness/wire"
)

// directives are a request's instructions to the gateway: how it is to talk to the picker. They are not forwarded.
type directives struct {
	value     bool // values in the value field; raw unless both
	both      bool
	upper     bool
	repeat    [2]string // name and value, "" none
	deadline  time.Duration
	halfClose bool
}

// takeDirectives removes the instructions from h.
func takeDirectives(h http.Header) (directives, error) {
	var d directives
	take := func(name string) string {
		name = textproto.CanonicalMIMEHeaderKey(name)
		v := h.Get(name)
		h.Del(name)
		return v
	}
	for form := range strings.SplitSeq(take(wire.HeaderForm), ",") {
		switch strings.TrimSpace(form) {
		case "", wire.FormRaw:
		case wire.FormValue:
			d.value = true
		case wire.FormBoth:
			d.both = true
		case wire.FormUpper:
			d.upper = true
		default:
			return d, fmt.Errorf("header %s: unknown form %q", wire.HeaderForm, form)
		}
	}
	d.halfClose = take(wire.HeaderHalfClose) != ""
	if text := take(wire.HeaderRepeat); text != "" {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return d, fmt.Errorf("header %s is %q, must be name=value", wire.HeaderRepeat, text)
		}
		d.repeat = [2]string{name, value}
	}
	if text := take(wire.HeaderDeadline); text != "" {
		var err error
		if d.deadline, err = time.ParseDuration(text); err != nil || d.deadline <= 0 {
			return d, fmt.Errorf("header %s is %q, must be a positive duration such as 500ms", wire.HeaderDeadline, text)
		}
	}
	return d, nil
}

// shape brings headers into the form that was asked for. Pseudo headers keep their names.
func (d directives) shape(m *corev3.HeaderMap) *corev3.HeaderMap {
	if d.repeat[0] != "" {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: d.repeat[0], RawValue: []byte(d.repeat[1])})
	}
	for _, h := range m.Headers {
		if d.value || d.both {
			h.Value = string(h.RawValue)
		}
		if d.value {
			h.RawValue = nil
		}
		if d.upper && !strings.HasPrefix(h.Key, ":") {
			h.Key = strings.ToUpper(h.Key)
		}
	}
	return m
}
