package async

import (
	"errors"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	good := `{"internal":{"retry_count":2,"labels":{"tier":"batch"},"new":1},"request_kind":"plain","data":{"id":"a","created":1,"deadline":5,` +
		`"payload":{ "n" : 9007199254740993,  "f":1.0,"s":"<>&"},"metadata":{"k":"v"},"later":true}}`
	e, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if string(e.Request.Payload) != `{ "n" : 9007199254740993,  "f":1.0,"s":"<>&"}` {
		t.Errorf("payload %s", e.Request.Payload)
	}
	again, err := Parse(e.Encode())
	if err != nil || string(again.Request.Payload) != string(e.Request.Payload) || string(again.data) != string(e.data) || again.Internal.RetryCount != 2 || !strings.Contains(string(e.data), `"later":true`) {
		t.Errorf("%v: %s", err, e.Encode())
	}
	for name, c := range map[string]struct {
		text, says string
		id         string
	}{
		"no JSON":               {`hello`, "unreadable", ""},
		"a bare request":        {`{"id":"a","deadline":1,"payload":{}}`, "request_kind", ""},
		"an unknown kind":       {`{"request_kind":"x","data":{"id":"a"}}`, "request_kind", ""},
		"no data":               {`{"request_kind":"plain"}`, "unreadable", ""},
		"no id":                 {`{"request_kind":"plain","data":{"deadline":1,"payload":{}}}`, "data.id", ""},
		"an id of another type": {`{"request_kind":"plain","data":{"id":1,"deadline":1,"payload":{}}}`, "unreadable", ""},
		"no deadline":           {`{"request_kind":"plain","data":{"id":"a","payload":{}}}`, "deadline", "a"},
		"a negative deadline":   {`{"request_kind":"plain","data":{"id":"a","deadline":-1,"payload":{}}}`, "deadline", "a"},
		"a deadline as text":    {`{"request_kind":"plain","data":{"id":"a","deadline":"1","payload":{}}}`, "deadline", "a"},
		"a fractional deadline": {`{"request_kind":"plain","data":{"id":"a","deadline":1.5,"payload":{}}}`, "deadline", "a"},
		"a payload array":       {`{"request_kind":"plain","data":{"id":"a","deadline":1,"payload":[]}}`, "payload", "a"},
		"no payload":            {`{"request_kind":"plain","data":{"id":"a","deadline":1}}`, "payload", "a"},
		"metadata of numbers":   {`{"request_kind":"plain","data":{"id":"a","deadline":1,"payload":{},"metadata":{"a":1}}}`, "metadata", "a"},
		"bad internals":         {`{"internal":{"retry_count":"x"},"request_kind":"plain","data":{"id":"a","deadline":1,"payload":{}}}`, "internal", "a"},
	} {
		e, err := Parse([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.says) || e.Request.ID != c.id || errors.Is(err, ErrUnreadable) != (c.id == "") {
			t.Errorf("%s: id %q, %v", name, e.Request.ID, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"request_kind":"plain","data":{"id":"a","deadline":1,"payload":{}}}`))
	f.Add([]byte(`{ "request_kind":"plain", "data": {"id":"a","deadline":1,"payload":{ "x" : [ 1 ] } } }`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := Parse(raw)
		if err != nil {
			return
		}
		again, err := Parse(e.Encode())
		if err != nil || again.Request.ID != e.Request.ID || string(again.Request.Payload) != string(e.Request.Payload) {
			t.Fatalf("%v: %s became %s", err, raw, e.Encode())
		}
	})
}

func TestTarget(t *testing.T) {
	for _, c := range []struct{ base, where, want string }{
		{"http://gw:80/", "/v1/completions", "http://gw:80/v1/completions"},
		{"http://gw", "v1/completions", "http://gw/v1/completions"},
		{"http://gw/base", "/v1/x/", "http://gw/base/v1/x/"},
		{"http://gw/base", "", "http://gw/base/"},
		{"https://gw/base/", "/a?b=c", "https://gw/base/a?b=c"},
		{"http://gw/base", "../../../admin", "http://gw/base/admin"},
		{"http://gw", "%2e%2e/x", "http://gw/x"},
		{"http://gw", "http://evil/x", ""}, {"http://gw", "//evil", ""}, {"http://gw", "///evil", ""}, {"http://gw", "\x00", ""},
		{"gw", "/x", ""}, {"http://", "/x", ""}, {"http://u:p@gw", "/x", ""}, {"ftp://gw", "/x", ""},
	} {
		if got, err := Target(c.base, c.where); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s + %s: %q, %v", c.base, c.where, got, err)
		}
	}
}
