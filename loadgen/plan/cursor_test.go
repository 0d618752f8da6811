package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

// TestCursorScripts plays testdata/*.txt. Commands:
//
//	plan duration=1s         input lines: "open ID at" | "loop think start [stop]" | "queue LOOP ID..."
//	step now=10ms [done=ID]  prints what is sent, then the deadline
func TestCursorScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var c *Cursor
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "plan":
				var err error
				if c, err = NewCursor(readPlan(t, d)); err != nil {
					return err.Error() + "\n"
				}
				return state(c)
			case "step":
				ev := Event{}
				if d.HasArg("done") {
					ev.Kind = Completed
					d.ScanArgs(t, "done", &ev.ID)
				}
				var now string
				d.ScanArgs(t, "now", &now)
				var b strings.Builder
				for _, o := range c.Step(at(t, now), ev, nil) {
					fmt.Fprintf(&b, "send %s intended %v\n", o.Request.ID, o.Intended)
				}
				return b.String() + state(c)
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}

func state(c *Cursor) string {
	s := "no deadline"
	if d, ok := c.Deadline(); ok {
		s = "deadline " + d.String()
	}
	if c.Done() {
		s += ", done"
	}
	if c.Exhausted() > 0 {
		s += fmt.Sprintf(", exhausted %d", c.Exhausted())
	}
	return s + "\n"
}

func readPlan(t *testing.T, d *datadriven.TestData) Plan {
	var duration string
	d.ScanArgs(t, "duration", &duration)
	p := Plan{Duration: at(t, duration)}
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		switch f[0] {
		case "open":
			p.Requests = append(p.Requests, Request{ID: f[1], At: at(t, f[2])})
		case "loop":
			l := Loop{Think: at(t, f[1]), Start: at(t, f[2])}
			if len(f) > 3 {
				l.Stop = at(t, f[3])
			}
			p.Loops = append(p.Loops, l)
		case "queue":
			var loop int
			if _, err := fmt.Sscan(f[1], &loop); err != nil {
				t.Fatal(err)
			}
			for _, id := range f[2:] {
				p.Requests = append(p.Requests, Request{ID: id, Loop: loop})
			}
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return p
}

func at(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestAnyPlanIsSentOnceAndNeverEarly drives random plans with random service times, lateness and stray events.
func TestAnyPlanIsSentOnceAndNeverEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := mustCompile(t, anySpec(t), rapid.Uint64().Draw(t, "seed"))
		c, err := NewCursor(p)
		if err != nil {
			t.Fatal(err)
		}
		h := history{t: t, p: p, sent: map[string]time.Duration{}, ended: map[string]time.Duration{}}
		service := rapid.IntRange(0, 200)
		var now time.Duration
		var flying []pending
		for steps := 0; !c.Done() || len(flying) > 0; steps++ {
			if steps > 200_000 {
				t.Fatal("the cursor does not come to an end")
			}
			next, wants := c.Deadline()
			ev := Event{}
			if i := earliest(flying); i >= 0 && (!wants || flying[i].end <= next) {
				now, ev = max(now, flying[i].end), Event{Completed, flying[i].id}
				h.ended[ev.ID] = now
				flying = append(flying[:i], flying[i+1:]...)
			} else {
				now = max(now, next) + time.Duration(rapid.IntRange(0, 3).Draw(t, "lateMs"))*time.Millisecond
			}
			for _, o := range c.Step(now, ev, nil) {
				h.send(now, o)
				flying = append(flying, pending{o.Request.ID, now + time.Duration(service.Draw(t, "serviceMs"))*time.Millisecond})
			}
			if out := c.Step(now, Event{}, nil); len(out) > 0 {
				t.Fatal("an extra tick sends something")
			}
			if out := c.Step(now, Event{Completed, "stranger"}, nil); len(out) > 0 {
				t.Fatal("an unknown completion sends something")
			}
		}
		h.finish(c)
	})
}

type pending struct {
	id  string
	end time.Duration
}

func earliest(list []pending) int {
	best := -1
	for i := range list {
		if best < 0 || list[i].end < list[best].end {
			best = i
		}
	}
	return best
}

// history checks the sends against the definition of a plan, without the cursor's data structures.
type history struct {
	t           *rapid.T
	p           Plan
	sent, ended map[string]time.Duration
	last        []string // per loop, 0-based: id of its last request
}

func (h *history) send(now time.Duration, o Out) {
	r := o.Request
	if _, dup := h.sent[r.ID]; dup {
		h.t.Fatalf("%s is sent twice", r.ID)
	}
	h.sent[r.ID] = now
	if o.Intended > now {
		h.t.Fatalf("%s is sent at %v, before its instant %v", r.ID, now, o.Intended)
	}
	if r.Loop == 0 {
		if o.Intended != r.At {
			h.t.Fatalf("%s is intended at %v, planned at %v", r.ID, o.Intended, r.At)
		}
		return
	}
	if h.last == nil {
		h.last = make([]string, len(h.p.Loops))
	}
	l := h.p.Loops[r.Loop-1]
	want := l.Start
	if prev := h.last[r.Loop-1]; prev != "" {
		end, over := h.ended[prev]
		if !over {
			h.t.Fatalf("%s is sent while %s is in flight", r.ID, prev)
		}
		want = end + l.Think
	}
	h.last[r.Loop-1] = r.ID
	if o.Intended != want || want >= h.p.end(l) {
		h.t.Fatalf("%s is intended at %v, want %v, before %v", r.ID, o.Intended, want, h.p.end(l))
	}
}

func (h *history) finish(c *Cursor) {
	left := make([]int, len(h.p.Loops))
	for _, r := range h.p.Requests {
		if _, ok := h.sent[r.ID]; ok {
			continue
		}
		if r.Loop == 0 {
			h.t.Fatalf("%s is never sent", r.ID)
		}
		left[r.Loop-1]++
	}
	exhausted := 0
	for i, l := range h.p.Loops {
		if left[i] == 0 {
			exhausted++
		} else if end := h.ended[h.last[i]]; end+l.Think < h.p.end(l) {
			h.t.Fatalf("loop %d stopped at %v although its next request was due before %v", i+1, end, h.p.end(l))
		}
	}
	if exhausted != c.Exhausted() {
		h.t.Fatalf("%d loops sent everything, the cursor says %d", exhausted, c.Exhausted())
	}
}

func TestNewCursorRefusesAnAmbiguousPlan(t *testing.T) {
	for _, row := range []struct {
		why  string
		p    Plan
		want string
	}{
		{"one id twice", Plan{Requests: []Request{{ID: "a"}, {ID: "a"}}}, "used twice"},
		{"no id", Plan{Requests: []Request{{}}}, "no id"},
		{"a loop that is not there", Plan{Requests: []Request{{ID: "a", Loop: 1}}}, "loop 1"},
		{"disorder", Plan{Requests: []Request{{ID: "a", At: 2}, {ID: "b", At: 1}}}, "sort by at"},
		{"a negative instant", Plan{Requests: []Request{{ID: "a", At: -1}}}, "due at"},
	} {
		if _, err := NewCursor(row.p); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.why, err)
		}
	}
}
