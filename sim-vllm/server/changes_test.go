package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/sim-vllm/presets"
)

// ask does one admin call and decodes its answer.
func ask[T any](t *testing.T, method, url, body string) (status int, out T) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return resp.StatusCode, out
}

func TestChanges(t *testing.T) {
	f := start(t, func(c *Config) { c.Hold, c.ClockID = true, "shared" })
	_, about := ask[About](t, http.MethodGet, f.url+"/admin/about", "")
	if about.API != AdminAPI || about.Name != "ep-1" || about.Clock != "shared" || about.Run == "" || about.NowNs <= 0 {
		t.Errorf("about: %+v", about)
	}
	_, none := ask[Changes](t, http.MethodGet, f.url+"/admin/changes?after=0&wait=0s", "")
	if none.Version != 0 || len(none.Requests) != 0 || none.Run != about.Run {
		t.Errorf("nothing has happened: %+v", none)
	}

	answered := make(chan struct{})
	go func() {
		defer close(answered)
		req, err := http.NewRequest(http.MethodPost, f.url+"/v1/completions", strings.NewReader(`{"prompt":"x"}`))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("x-weir-id", "r1")
		resp, err := f.client.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
	}()
	_, came := ask[Changes](t, http.MethodGet, f.url+"/admin/changes?after=0&wait=20s", "")
	if len(came.Requests) != 1 || came.InFlight != 1 || !came.Requests[0].Record.Held || came.Requests[0].Record.Released != evidence.Never {
		t.Errorf("an arrival ends the wait: %+v", came)
	}
	waited := make(chan Changes)
	go func() {
		_, c := ask[Changes](t, http.MethodGet, fmt.Sprintf("%s/admin/changes?after=%d&wait=20s", f.url, came.Version), "")
		waited <- c
	}()
	if !f.Release("r1") {
		t.Fatal("r1 is not held")
	}
	if c := <-waited; len(c.Requests) != 1 || c.Requests[0].Index != 0 || c.Requests[0].Record.Released == evidence.Never {
		t.Errorf("a release is a change of the same record: %+v", c)
	}
	<-answered
	_, last := ask[Changes](t, http.MethodGet, f.url+"/admin/changes?after=0&wait=0s", "")
	if len(last.Requests) != 1 || last.Requests[0].Record.Ending != evidence.Finished || last.InFlight != 0 {
		t.Errorf("at the end: %+v", last)
	}
	if _, c := ask[Changes](t, http.MethodGet, fmt.Sprintf("%s/admin/changes?after=%d&wait=1ms", f.url, last.Version), ""); len(c.Requests) != 0 || c.Version != last.Version {
		t.Errorf("nothing new within the wait: %+v", c)
	}
	for _, query := range []string{"", "?after=x&wait=1s", "?after=1", "?after=1&wait=-1s", "?after=1&wait=1h"} {
		if status, _ := ask[Changes](t, http.MethodGet, f.url+"/admin/changes"+query, ""); status != http.StatusBadRequest {
			t.Errorf("%q: status %d", query, status)
		}
	}
}

func TestHostSetsUpAgain(t *testing.T) {
	ec, err := presets.Get("h100-llama3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	h, err := NewHost(Config{Name: "a", Engine: ec}, presets.Get)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(h.Handler())
	defer web.Close()
	defer h.Close()
	_, before := ask[About](t, http.MethodGet, web.URL+"/admin/about", "")
	if status, _ := ask[struct{}](t, http.MethodGet, web.URL+"/v1/models", ""); status != http.StatusOK {
		t.Fatal("it does not serve")
	}
	_, after := ask[About](t, http.MethodPost, web.URL+"/admin/setup", `{"preset":"instant","maxSeqs":2,"hold":true,"heldAsWaiting":true}`)
	if after.Run == before.Run || after.Clock != before.Clock || after.Name != "a" || after.NowNs < before.NowNs {
		t.Errorf("another run on the same clock: %+v, then %+v", before, after)
	}
	now := h.Server()
	if now.cfg.Engine.MaxNumSeqs != 2 || !now.cfg.Hold || !now.cfg.HeldAsWaiting {
		t.Errorf("set up as %+v", now.cfg)
	}
	for says, body := range map[string]string{"an unknown preset": `{"preset":"x"}`, "a negative limit": `{"maxSeqs":-1}`, "an unknown field": `{"held":true}`} {
		if status, _ := ask[About](t, http.MethodPost, web.URL+"/admin/setup", body); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", says, status)
		}
	}
	if h.Server() != now {
		t.Error("a refused set-up has changed the server")
	}
	h.Close()
	if status, _ := ask[About](t, http.MethodPost, web.URL+"/admin/setup", `{}`); status != http.StatusBadRequest {
		t.Errorf("after the end: status %d", status)
	}
}
