package picker

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llm-weir/weir/reference/flowcontrol"
)

// TestForeignLoadIsForgotten: what other replicas reported leaves no trace. A picker that has heard of them decides everything as one
// that has not, once the last report is too old, and at once where nothing is to be counted: reports of nothing, a limit of 0, the
// utilization detector (FC-MULTI-03).
func TestForeignLoadIsForgotten(t *testing.T) {
	reports := func(t *rapid.T, from time.Duration, busy bool) (h []timed) {
		for range rapid.IntRange(1, 20).Draw(t, "reports") {
			from += time.Duration(uniform(t, "apart", 30)) * time.Millisecond
			r := Report{Replica: uniform(t, "replica", 4), At: from - time.Duration(uniform(t, "age", 20))*time.Millisecond}
			for range uniform(t, "loads", 4) {
				l := ForeignLoad{Endpoint: EndpointID(uniform(t, "endpoint", 4))}
				if busy {
					l.Requests, l.Tokens = uniform(t, "requests", 9), int64(uniform(t, "tokens", 99))
				}
				r.Loads = append(r.Loads, l)
			}
			h = append(h, timed{from, Event{Kind: Foreign, Report: r}})
		}
		return h
	}
	rapid.Check(t, func(t *rapid.T) {
		cfg, h := drawConfig(t), drawHistory(t)
		same := func(what string, cfg Config, h, with []timed) {
			want, wantAt := replay(t, cfg, h, 0)
			if got, at := replay(t, cfg, with, 0); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(at, wantAt) {
				t.Fatalf("%s\n got %+v\n  at %v\nwant %+v\n  at %v", what, got, at, want, wantAt)
			}
		}
		h = append(without(h, Foreign), timed{time.Hour, Event{Kind: Tick}}) // both go on until nothing is left to happen
		d := &cfg.Flow.Detector
		if cfg.Flow.Ceiling.Kind == flowcontrol.SoftReflective {
			cfg.Flow.Ceiling = flowcontrol.CeilingConfig{Threshold: 1} // there any event is one more dispatch cycle
		}
		before := reports(t, 0, true)
		start := before[len(before)-1].at + d.ForeignLimit + 1
		later := make([]timed, len(h))
		for i, x := range h {
			x.at += start
			x.ev.Load.At += start
			x.ev.Request.Received += start
			later[i] = x
		}
		same("reports that are too old", cfg, later, append(before, later...))
		same("reports of nothing", cfg, h, merge(h, reports(t, 0, false)))
		d.ForeignLimit = 0
		same("reports that are ignored", cfg, h, merge(h, reports(t, 0, true)))
		d.ForeignLimit, d.Kind = time.Second, flowcontrol.Utilization
		same("reports beside readings", cfg, h, merge(h, reports(t, 0, true)))
	})
}

func without(h []timed, kind EventKind) (out []timed) {
	for _, x := range h {
		if x.ev.Kind != kind {
			out = append(out, x)
		}
	}
	return out
}

// merge puts two histories in the order of time.
func merge(a, b []timed) (out []timed) {
	for len(a)+len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && a[0].at <= b[0].at {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

// TestForeignBoundaries has one row per way in which a report can be out of bounds.
func TestForeignBoundaries(t *testing.T) {
	cfg := Config{Flow: flowcontrol.Config{Ceiling: flowcontrol.CeilingConfig{Threshold: 1},
		Detector: flowcontrol.DetectorConfig{MaxConcurrency: 4, Kind: flowcontrol.Concurrency, ForeignLimit: time.Second}}}
	for _, c := range []struct {
		says string
		at   time.Duration // of the report, which comes at 10 s
		load ForeignLoad
		want float64 // pressure after it
	}{
		{"a plain one", 10 * time.Second, ForeignLoad{Requests: 1}, 0.25},
		{"as old as the limit", 9 * time.Second, ForeignLoad{Requests: 1}, 0.25},
		{"older than the limit", 9*time.Second - 1, ForeignLoad{Requests: 1}, 0},
		{"negative", 10 * time.Second, ForeignLoad{Requests: -4, Tokens: -4}, 0},
		{"an endpoint that cannot be", 10 * time.Second, ForeignLoad{Endpoint: -1, Requests: 1}, 0},
		{"an endpoint that is not there", 10 * time.Second, ForeignLoad{Endpoint: 3, Requests: 1}, 0},
	} {
		p := mustNew(t, cfg)
		p.Step(0, Event{Kind: SetEndpoint}, nil)
		p.Step(10*time.Second, Event{Kind: Foreign, Report: Report{At: c.at, Loads: []ForeignLoad{c.load}}}, nil)
		if got := p.Pressure().Effective; got != c.want {
			t.Errorf("%s: pressure %v, want %v", c.says, got, c.want)
		}
		if p.InFlight(0) != 0 || p.InFlightTokens(0) != 0 {
			t.Errorf("%s: it counts as the picker's own", c.says)
		}
	}
	// A report from the future ages from the moment in which it came.
	p := mustNew(t, cfg)
	p.Step(0, Event{Kind: Foreign, Report: Report{At: time.Hour, Loads: []ForeignLoad{{Requests: 1}}}}, nil)
	if at, ok := p.Deadline(); !ok || at != time.Second+1 {
		t.Errorf("deadline %v %v", at, ok)
	}
	// An endpoint takes its foreign load into the pool, whenever it joins, and to the stage of its role.
	p.Step(0, Event{Kind: SetEndpoint}, nil)
	if got := p.Pressure().Effective; got != 0.25 {
		t.Errorf("pressure %v after the endpoint joined", got)
	}
	p.Step(0, Event{Kind: RemoveEndpoint}, nil)
	p.Step(0, Event{Kind: SetEndpoint, Endpoint: Endpoint{Role: RolePrefill}}, nil)
	if got := p.Pressure().Effective; got != 0.25 {
		t.Errorf("pressure %v after the endpoint came back", got)
	}
	p.Step(time.Second+1, Event{Kind: Tick}, nil)
	if got := p.Pressure().Effective; got != 0 {
		t.Errorf("pressure %v after the report is too old", got)
	}
}
