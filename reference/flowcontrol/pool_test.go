package flowcontrol

import (
	"math"
	"testing"
	"time"
)

// TestHeadroomBoundary: the boundary is truncated to whole requests and strict (FC-HEAD-06, FC-HEAD-11).
func TestHeadroomBoundary(t *testing.T) {
	for _, tc := range []struct {
		limit    int
		headroom float64
		want     int // first count that is excluded
	}{{100, 0, 100}, {100, 0.1, 110}, {10, 0.1, 11}, {100, 0.15, 114}, {3, 0.25, 3}, {4, 0.25, 5}} {
		p := newPool(DetectorConfig{Kind: Concurrency, MaxConcurrency: tc.limit, Headroom: tc.headroom}, false)
		if !p.Eligible(0, &Member{inFlight: tc.want - 1}) || p.Eligible(0, &Member{inFlight: tc.want}) {
			t.Errorf("limit %d with headroom %v: boundary is not %d", tc.limit, tc.headroom, tc.want)
		}
	}
}

// TestSampleNonsense: values no server can mean count as missing, late and future samples neither rewind nor outlive the clock
// (FC-SAT-09).
func TestSampleNonsense(t *testing.T) {
	det := DetectorConfig{Kind: Utilization, QueueDepth: 5, KVUtil: 0.8, Staleness: 200 * time.Millisecond}
	for _, tc := range []struct {
		why  string
		l    Load
		want float64
	}{
		{"good", Load{Waiting: 2, KV: 0.1, HasWaiting: true, HasKV: true}, 0.4},
		{"waiting not a number", Load{Waiting: math.NaN(), HasWaiting: true, HasKV: true}, 1},
		{"negative waiting", Load{Waiting: -1, HasWaiting: true, HasKV: true}, 1},
		{"infinite waiting", Load{Waiting: math.Inf(1), HasWaiting: true, HasKV: true}, 1},
		{"KV not a number", Load{KV: math.NaN(), HasWaiting: true, HasKV: true}, 1},
		{"no waiting family", Load{HasKV: true}, 1},
		{"no KV family", Load{HasWaiting: true}, 1},
	} {
		p := newPool(det, false)
		p.set(Endpoint{ID: 0})
		tc.l.OK = true
		p.sample(0, 0, tc.l)
		if pr := p.Pressure(0); pr.Effective != tc.want || (pr.Stale == 1) != (tc.want == 1) {
			t.Errorf("%s: %+v, want %v", tc.why, pr, tc.want)
		}
	}
	p := newPool(det, false)
	p.set(Endpoint{ID: 0})
	p.sample(time.Second, 0, Load{At: time.Hour, Waiting: 2, HasWaiting: true, HasKV: true, OK: true})
	p.sample(time.Second, 0, Load{At: 0, Waiting: 4, HasWaiting: true, HasKV: true, OK: true})
	if got := p.Pressure(1200 * time.Millisecond).Effective; got != 0.4 {
		t.Errorf("a sample of the future, then one of the past: %v, want 0.4", got)
	}
	if got := p.Pressure(1201 * time.Millisecond).Effective; got != 1 {
		t.Errorf("a sample of the future does not grow stale: %v", got)
	}
}
