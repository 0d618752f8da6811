package scheduling

import (
	"math"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/flowcontrol"
)

func controller(t testing.TB, det flowcontrol.DetectorConfig, addresses ...string) *flowcontrol.Controller {
	c, err := flowcontrol.New(flowcontrol.Config{Detector: det, Ceiling: flowcontrol.CeilingConfig{Threshold: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range addresses {
		c.SetEndpoint(0, flowcontrol.Endpoint{ID: flowcontrol.EndpointID(i), Address: a})
	}
	return c
}

// TestSubsetNames: an entry with a port is a whole address, one without is an IP.
func TestSubsetNames(t *testing.T) {
	for _, tc := range []struct {
		hint, address string
		want          bool
	}{
		{"10.0.0.1:8000", "10.0.0.1:8000", true},
		{"10.0.0.1:8001", "10.0.0.1:8000", false},
		{"10.0.0.1", "10.0.0.1:8000", true},
		{"10.0.0.2", "10.0.0.1:8000", false},
		{"10.0.0", "10.0.0.1:8000", false},
		{"[fd00::1]:8000", "[fd00::1]:8000", true},
		{"[fd00::1]:8001", "[fd00::1]:8000", false},
		{"fd00::1", "[fd00::1]:8000", true},
		{"[fd00::1]", "[fd00::1]:8000", true},
		{"fd00::", "fd00::1", false},
		{"", ":8000", false},
		{"", "", true},
	} {
		if got := names(tc.hint, tc.address); got != tc.want {
			t.Errorf("%q names %q: %v", tc.hint, tc.address, got)
		}
	}
}

// TestScorers: each gives 0..1 and prefers less; unknown values get nothing.
func TestScorers(t *testing.T) {
	det := flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, MaxConcurrency: 9}
	load := func(waiting, running, kv float64) flowcontrol.Load {
		return flowcontrol.Load{Waiting: waiting, Running: running, KV: kv, HasWaiting: true, HasKV: true, OK: true}
	}
	for _, tc := range []struct {
		why     string
		scorers []Scorer
		loads   []flowcontrol.Load
		want    flowcontrol.EndpointID
	}{
		{"least waiting", []Scorer{{Queue, 1}}, []flowcontrol.Load{load(3, 0, 0), load(1, 9, 1), load(2, 0, 0)}, 1},
		{"least KV", []Scorer{{KVUtilization, 1}}, []flowcontrol.Load{load(0, 0, 0.5), load(0, 0, 0.4), load(0, 0, 0.3)}, 2},
		{"KV over 1 is no less than 0 points", []Scorer{{KVUtilization, 1}, {Queue, 0.1}}, []flowcontrol.Load{load(5, 0, 1), load(1, 0, 7)}, 1},
		{"least running", []Scorer{{RunningRequests, 1}}, []flowcontrol.Load{load(0, 2, 0), load(9, 1, 1)}, 1},
		{"weights decide", []Scorer{{Queue, 1}, {KVUtilization, 3}}, []flowcontrol.Load{load(0, 0, 0.9), load(9, 0, 0.1)}, 1},
		{"weight 0 says nothing", []Scorer{{Queue, 0}, {KVUtilization, 1}}, []flowcontrol.Load{load(0, 0, 0.9), load(9, 0, 0.1)}, 1},
		{"unknown is not idle", []Scorer{{Queue, 1}}, []flowcontrol.Load{{OK: true}, load(9, 0, 0), load(8, 0, 0)}, 2},
		{"equal values count fully, so the other scorer decides", []Scorer{{Queue, 1}, {KVUtilization, 1}}, []flowcontrol.Load{load(4, 0, 0.6), load(4, 0, 0.5)}, 1},
	} {
		c := controller(t, det, "a:1", "b:1", "c:1")
		for i := len(tc.loads); i < 3; i++ {
			c.RemoveEndpoint(0, flowcontrol.EndpointID(i))
		}
		for i, l := range tc.loads {
			c.Sample(0, flowcontrol.EndpointID(i), l)
		}
		s, err := New(Config{Scorers: tc.scorers}, flowcontrol.Config{Detector: det})
		if err != nil {
			t.Fatal(err)
		}
		if p, o := s.Pick(0, &flowcontrol.Request{}, c.Pool()); o != wire.Dispatched || p.Member.ID != tc.want {
			t.Errorf("%s: %v to %+v, want %d", tc.why, o, p.Member, tc.want)
		}
	}
}

// TestTiesAreSeeded: equal endpoints share, one seed gives one sequence, another seed another.
func TestTiesAreSeeded(t *testing.T) {
	det := flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, MaxConcurrency: 9}
	draw := func(seed uint64) (ids []flowcontrol.EndpointID, count [3]int) {
		c := controller(t, det, "a:1", "b:1", "c:1")
		s, err := New(Config{Seed: seed}, flowcontrol.Config{Detector: det})
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			p, _ := s.Pick(0, &flowcontrol.Request{}, c.Pool())
			ids = append(ids, p.Member.ID)
			count[p.Member.ID]++
		}
		return ids, count
	}
	a, count := draw(1)
	b, _ := draw(1)
	other, _ := draw(2)
	same, differs := true, false
	for i := range a {
		same = same && a[i] == b[i]
		differs = differs || a[i] != other[i]
	}
	if !same || !differs {
		t.Errorf("same seed same sequence: %v, other seed other sequence: %v", same, differs)
	}
	for id, n := range count {
		if n < 60 || n > 140 {
			t.Errorf("endpoint %d got %d of 300", id, n)
		}
	}
}

func TestValidate(t *testing.T) {
	err := Config{Scorers: []Scorer{{LoRAAffinity + 1, 1}, {Queue, -1}, {Queue, math.NaN()}, {Queue, math.Inf(1)}}, MaxEndpoints: -1,
		Labels: []LabelFilter{{}, {Key: "a=b"}, {Key: "a", Values: []string{"b,c"}}}, Prefix: PrefixConfig{MaxBlocks: -1, LRUCapacity: math.MaxInt, BlockTokens: -1}}.Validate()
	if err == nil || strings.Count(err.Error(), "\n") != 10 {
		t.Errorf("want eleven errors, got %v", err)
	}
	if err := (Config{Labels: []LabelFilter{{Key: "llm-d.ai/role", Values: []string{"", "decode"}}}, Prefix: PrefixConfig{16, 2048, 31250}}).Validate(); err != nil {
		t.Error(err)
	}
	for k := range LoRAAffinity + 1 {
		if err := (Config{Scorers: []Scorer{{k, 1}}}).Validate(); err != nil {
			t.Error(err)
		}
	}
}
