package server

import (
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
)

func TestAdmin(t *testing.T) {
	f := start(t, nil)
	ok := func(path, body, part string) {
		t.Helper()
		if got := f.post("", path, body); got.status != 200 || !strings.Contains(got.body, part) {
			t.Errorf("%s %s: %+v", path, body, got)
		}
	}
	ok("/admin/hold", `{"hold":true}`, `"hold":true`)
	a := f.later(t.Context(), "a", "/v1/completions", plainBody)
	f.awaitHeld("a")
	b := f.later(t.Context(), "b", "/v1/completions", plainBody)
	f.awaitHeld("a", "b")
	if got := f.get("/admin/state").body; !strings.Contains(got, `"held":["a","b"],"inFlight":2`) {
		t.Errorf("state %s", got)
	}
	log := decode[[]evidence.Backend](t, f.get("/admin/requests").body)
	if len(log) != 2 || log[0].ID != "a" || log[0].Ending != evidence.Running || !log[0].Held {
		t.Errorf("log %+v", log)
	}
	ok("/admin/release", `{"id":"b"}`, `{"released":1}`)
	<-b
	ok("/admin/release", `{"id":"b"}`, `{"released":0}`)
	ok("/admin/release", `{"all":true}`, `{"released":1}`)
	<-a
	ok("/admin/load", `{"waiting":4,"running":2,"kv":0.25}`, "")
	if v := gauge(t, f.get("/metrics").body, wire.VLLMKVUsage); v != 0.25 {
		t.Errorf("KV usage %v", v)
	}
	ok("/admin/load", `null`, "")
	ok("/admin/metrics", `{"fault":"error500"}`, "")
	if f.get("/metrics").status != 500 {
		t.Error("the metrics fault is not on")
	}
	ok("/admin/fail", `{"status":429}`, "")
	if got := f.post("c", "/v1/completions", plainBody); got.status != 429 {
		t.Errorf("got %+v", got)
	}
	ok("/admin/reset", ``, `"hold":false`)
	if got := f.post("d", "/v1/completions", plainBody); got.status != 200 || len(f.Log()) != 1 || f.Scrapes() != 0 {
		t.Errorf("after the reset: %+v, %+v, %d scrapes", got, f.Log(), f.Scrapes())
	}
	if f.get("/metrics").status != 200 {
		t.Error("the reset left the metrics fault")
	}
}

func TestAdminFaultsAreNamed(t *testing.T) {
	f := start(t, nil)
	for _, row := range [][3]string{
		{"/admin/hold", `{"hodl":true}`, `unknown field \"hodl\"`},
		{"/admin/hold", `{}`, "hold is missing"},
		{"/admin/hold", `{"hold":true}{}`, "more than one JSON document"},
		{"/admin/release", `{}`, "want either"},
		{"/admin/release", `{"id":"a","all":true}`, "want either"},
		{"/admin/load", `{"waitng":1}`, "waitng"},
		{"/admin/metrics", `{"fault":"odd"}`, "known are"},
		{"/admin/metrics", `{}`, "known are"},
		{"/admin/fail", `{"status":200}`, "400..599"},
		{"/admin/fail", `{}`, "status is missing"},
	} {
		if got := f.post("", row[0], row[1]); got.status != 400 || !strings.Contains(got.body, row[2]) || !strings.Contains(got.body, row[0]) {
			t.Errorf("%s %s: %+v", row[0], row[1], got)
		}
	}
}
