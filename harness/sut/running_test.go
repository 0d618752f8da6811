package sut_test

import (
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
)

func TestRunningValidate(t *testing.T) {
	for _, c := range []struct {
		says string
		r    sut.Running
		want string
	}{
		{"nothing", sut.Running{}, ""},
		{"everything", sut.Running{Gateway: "https://gateway.example", Metrics: "http://127.0.0.1:9090/metrics", ExtProc: "127.0.0.1:9002", Health: "[::1]:9003",
			Simulators: map[string]string{"a": "http://127.0.0.1:8001"}, Addresses: map[string]string{"a": "10.0.0.1:8000"},
			Configure: sut.Hooks{Command: "c", Update: "u", Try: "t", Stop: "s", Start: "s", Limit: time.Second}}, ""},
		{"another scheme", sut.Running{Gateway: "grpc://x:1"}, "running.gateway: want http://host:port"},
		{"no scheme", sut.Running{Metrics: "127.0.0.1:9090"}, "running.metrics: want http://host:port"},
		{"a simulator without an address", sut.Running{Simulators: map[string]string{"a": ""}}, "running.simulators.a"},
		{"an address of nobody", sut.Running{Addresses: map[string]string{"b": "10.0.0.1:1"}}, "running.addresses.b: no simulator"},
		{"no port", sut.Running{ExtProc: "localhost"}, "running.extProc: want host:port"},
		{"a limit that is none", sut.Running{Configure: sut.Hooks{Limit: -1}}, "limit: must not be negative"},
		{"an update of what was never configured", sut.Running{Configure: sut.Hooks{Update: "u"}}, "running.configure.command: missing"},
		{"half a restart", sut.Running{Configure: sut.Hooks{Command: "c", Stop: "s"}}, "stop and start go together"},
	} {
		if err := c.r.Validate(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.says, err, c.want)
		}
	}
}

func TestRunningAddress(t *testing.T) {
	r := sut.Running{Simulators: map[string]string{"a": "http://127.0.0.1:8001", "b": "http://127.0.0.1:8002"}, Addresses: map[string]string{"b": "10.0.0.1:1"}}
	if got := r.Address("a") + " " + r.Address("b") + " " + strings.Join(r.Names(), ","); got != "127.0.0.1:8001 10.0.0.1:1 a,b" {
		t.Error(got)
	}
}

// Two configurations have one identity exactly where a router that has the one needs nothing to have the other.
func TestIdentity(t *testing.T) {
	p, err := profile.Named(profile.Default)
	if err != nil {
		t.Fatal(err)
	}
	base := sut.Configuration{Endpoints: []sut.Endpoint{{Name: "a"}}, Objectives: map[string]int{"p0": 0}, Detector: sut.Detector{Kind: "concurrency", MaxConcurrency: 1}}
	id := func(change func(*sut.Configuration)) string {
		c := base
		change(&c)
		got, err := sut.Identity(c, p.Config)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	same := id(func(*sut.Configuration) {})
	for _, c := range []struct {
		says   string
		change func(*sut.Configuration)
		same   bool
	}{
		{"what only model servers are told", func(c *sut.Configuration) { c.Hold, c.Preset, c.MaxSeqs, c.HeldAsWaiting = true, "instant", 3, true }, true},
		{"one picker, said or not", func(c *sut.Configuration) { c.Pickers = 1 }, true},
		{"a limit", func(c *sut.Configuration) { c.Detector.MaxConcurrency = 2 }, false},
		{"an objective", func(c *sut.Configuration) { c.Objectives = map[string]int{"p0": 1} }, false},
		{"a role", func(c *sut.Configuration) { c.Endpoints = []sut.Endpoint{{Name: "a", Role: "decode"}} }, false},
		{"another server", func(c *sut.Configuration) { c.Endpoints = []sut.Endpoint{{Name: "a"}, {Name: "b"}} }, false},
	} {
		if got := id(c.change) == same; got != c.same {
			t.Errorf("%s: the same is %v, want %v", c.says, got, c.same)
		}
	}
}
