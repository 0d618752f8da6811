package profile

import (
	"strings"
	"testing"
)

func TestEveryProfileReads(t *testing.T) {
	for _, n := range All() {
		p, err := Named(n)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name != n || p.Title == "" || p.Refusals.Capacity.Status != 429 || p.Tolerances.Slack == 0 || p.Config.Spacing == 0 {
			t.Errorf("%s is not complete: %+v", n, p)
		}
		for _, id := range append(append(p.NotApplicable, p.Recorded...), p.ExpectedFail...) {
			if strings.Contains(id, "..") {
				t.Errorf("%s: range %s was not expanded", n, id)
			}
		}
	}
	if _, err := Named("nonsense"); err == nil || !strings.Contains(err.Error(), Default) {
		t.Errorf("an unknown profile must list the known ones, got %v", err)
	}
}

func TestEveryProcessorProfileReads(t *testing.T) {
	for _, n := range Processors() {
		p, err := Named(n)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name != n || p.Title == "" || p.Processor == nil || p.Processor.Payload == "" || p.Processor.ParkedTooLong == "" {
			t.Errorf("%s is not complete: %+v", n, p)
		}
	}
	for _, n := range All() {
		if p, _ := Named(n); p.Processor != nil {
			t.Errorf("%s is a contract of routers", n)
		}
	}
}

// The catalogue's table of expected values, literally (spec/requirements.md, "Expected values per profile: picker").
func TestWaitLimitPerProfile(t *testing.T) {
	want := map[string][2]int{"llm-d-router-2026-09": {429, 503}, "llm-d-router-0.9": {503, 503}, "rhoai-3.4": {503, 503}}
	for n, w := range want {
		p, _ := Named(n)
		if p.Refusals.TTL.Status != w[0] || p.Refusals.TTLEmptyPool.Status != w[1] {
			t.Errorf("%s: wait limit %d / %d, want %v", n, p.Refusals.TTL.Status, p.Refusals.TTLEmptyPool.Status, w)
		}
	}
}

func TestRanges(t *testing.T) {
	got, err := expand([]string{"FC-PD-08..10", "E2E-01..02", "INV-1"})
	if err != nil || strings.Join(got, " ") != "FC-PD-08 FC-PD-09 FC-PD-10 E2E-01 E2E-02 INV-1" {
		t.Errorf("%v %v", got, err)
	}
	if _, err := expand([]string{"x..y"}); err == nil {
		t.Error("a broken range must be refused")
	}
}
