package sut_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/loadgen/plan"
)

// due is something that will happen on the stage.
type due struct {
	at time.Duration
	do func()
}

// stage is a router with a limit of one, in front of model server a, which holds what it gets; time passes only in Await. Its
// fields say how it misbehaves.
type stage struct {
	now     time.Duration
	agenda  []due
	sent    []string
	ended   map[string]bool
	waiting []string
	arrived []string
	held    []string // not yet released
	inside  []string // at the model server
	calls   []string // what was asked of the stage beyond requests

	limit     int  // requests let in at once
	deaf      bool // releases free nothing
	refuses   bool // everything that would wait is answered at once
	gaugeless bool
	scrapes   int64
	frozen    bool // the router scrapes nothing
	invalid   string
	err       error
	drained   []string // abandoned

	messages []string  // of the batch processor, which tries each once
	tries    []attempt // that have ended
	results  []string
}

// attempt is one of the batch processor's.
type attempt struct {
	id     string
	status int
}

func newStage() *stage { return &stage{limit: 1, ended: map[string]bool{}} }

func (s *stage) later(d time.Duration, f func()) { s.agenda = append(s.agenda, due{s.now + d, f}) }

func (s *stage) Now() time.Duration { return s.now }

func (s *stage) Await(ctx context.Context, until time.Duration, cond func() bool) bool {
	for {
		if cond() {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		next := -1
		for i, d := range s.agenda {
			if d.at <= until && (next < 0 || d.at < s.agenda[next].at) {
				next = i
			}
		}
		if next < 0 {
			s.now = max(s.now, until)
			return cond()
		}
		d := s.agenda[next]
		s.agenda = slices.Delete(s.agenda, next, next+1)
		s.now = max(s.now, d.at)
		d.do()
	}
}

func (s *stage) Send(r sut.Request) {
	s.sent = append(s.sent, r.ID)
	s.come(r.ID)
}

// come lets a request reach the router.
func (s *stage) come(id string) {
	s.later(time.Millisecond, func() {
		s.waiting = append(s.waiting, id)
		s.dispatch()
		if s.refuses && slices.Contains(s.waiting, id) {
			s.end(id)
		}
	})
}

// Enqueue implements sut.Batcher.
func (s *stage) Enqueue(queue string, m sut.AsyncMessage) error {
	s.note("enqueue " + m.ID + " in " + queue)
	if s.err == nil {
		s.messages = append(s.messages, m.ID)
		s.come(m.ID)
	}
	return s.err
}

// Results implements sut.Batcher.
func (s *stage) Results(ids []string) int {
	return len(slices.DeleteFunc(slices.Clone(s.results), func(id string) bool { return !evidence.Among(ids, id) }))
}

// Tried implements sut.Batcher.
func (s *stage) Tried(ids []string, status int) int {
	return len(slices.DeleteFunc(slices.Clone(s.tries), func(a attempt) bool { return !evidence.Among(ids, a.id) || status != 0 && status != a.status }))
}

func (s *stage) dispatch() {
	for len(s.waiting) > 0 && len(s.inside) < s.limit {
		id := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.held = append(s.held, id)
		s.inside = append(s.inside, id)
		s.arrived = append(s.arrived, id)
	}
}

func (s *stage) end(id string) {
	s.ended[id] = true
	if slices.Contains(s.messages, id) {
		status := 429
		if slices.Contains(s.inside, id) {
			status = 200
			s.results = append(s.results, id)
		}
		s.tries = append(s.tries, attempt{id, status})
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(x string) bool { return x == id })
	s.held = slices.DeleteFunc(s.held, func(x string) bool { return x == id })
	s.inside = slices.DeleteFunc(s.inside, func(x string) bool { return x == id })
}

func (s *stage) Cancel(id string)     { s.end(id); s.dispatch() }
func (s *stage) Abandon(id string)    { s.drained = append(s.drained, id); s.end(id) }
func (s *stage) Ended(id string) bool { return s.ended[id] }
func (s *stage) Held() []string       { return slices.Clone(s.held) }
func (s *stage) Arrivals() []string   { return s.arrived }
func (s *stage) note(what string)     { s.calls = append(s.calls, what) }
func (s *stage) Shutdown()            { s.note("shutdown") }
func (s *stage) Scrapes(string) int64 { return s.scrapes }
func (s *stage) Sample(m, endpoint string, all bool) error {
	what := "sample " + m
	if endpoint != "" {
		what += " of " + endpoint
	}
	if all {
		what += " all"
	}
	s.note(what)
	return s.err
}

func (s *stage) Open() int { return len(s.Unended()) }

func (s *stage) Unended() []string {
	var out []string
	for _, id := range s.sent {
		if !s.ended[id] {
			out = append(out, id)
		}
	}
	return out
}

func (s *stage) Release(id string) bool {
	if !slices.Contains(s.held, id) {
		return false
	}
	s.held = slices.DeleteFunc(s.held, func(x string) bool { return x == id })
	if !s.deaf {
		s.later(time.Millisecond, func() { s.end(id); s.dispatch() })
	}
	return true
}

func (s *stage) HeldAt(endpoint string) []string {
	if endpoint != "a" {
		return nil
	}
	return s.Held()
}

func (s *stage) SetHold(on bool) { s.note(map[bool]string{true: "hold on", false: "hold off"}[on]) }

func (s *stage) SetLoad(string, sut.LoadValues) {
	for i := range 5 {
		if !s.frozen {
			s.later(time.Duration(i+1)*50*time.Millisecond, func() { s.scrapes++ })
		}
	}
}

func (s *stage) SetFault(endpoint, mode string) error {
	s.note("fault " + endpoint + " " + mode)
	return s.err
}
func (s *stage) Relabel(name, role string) error { s.note("label " + name + " " + role); return s.err }
func (s *stage) SetObjectives(m map[string]int, _ []sut.Objective) error {
	s.note(fmt.Sprint("objectives ", m))
	return s.err
}
func (s *stage) Down() bool                             { return true }
func (s *stage) Streams(n int) error                    { s.note(fmt.Sprint("streams ", n)); return s.err }
func (s *stage) Health(context.Context) (string, error) { s.note("health"); return "SERVING", s.err }
func (s *stage) Restart(context.Context) error          { s.note("restart"); return s.err }
func (s *stage) SetFailure(int) error                   { s.note("failure"); return s.err }
func (s *stage) AddEndpoint(name string) error          { s.note("add " + name); return s.err }
func (s *stage) RemoveEndpoint(name string) error       { s.note("remove " + name); return s.err }
func (s *stage) QueueSize() (int, bool)                 { return len(s.waiting), !s.gaugeless }

func (s *stage) CutOff(int) error { return nil }

func (s *stage) TryStart(_ context.Context, name, doc string, _ bool) evidence.Process {
	return evidence.Process{Case: "as the stage calls it", Started: doc == "valid", Text: name}
}

func (s *stage) Load(_ context.Context, _ plan.Plan, begun func()) (string, error) {
	s.now += time.Second // reading a plan takes its time
	begun()
	return s.invalid, s.err
}

// TestLoadCountsFromItsPlan: a load's step starts with the plan's clock, so that windows into two loads of one plan hold the same requests.
func TestLoadCountsFromItsPlan(t *testing.T) {
	st, out := newStage(), evidence.NewRecorder("s")
	if err := sut.PlayOn(context.Background(), st, sut.Script{Steps: []sut.Step{{Op: sut.OpLoad, Mark: "x", Plan: &plan.Plan{}}}}, out); err != nil {
		t.Fatal(err)
	}
	if m, _ := ptr(out.Run()).StepByMark("x"); time.Duration(m.Start) != time.Second {
		t.Errorf("the load starts at %v", time.Duration(m.Start))
	}
}

func ptr[T any](v T) *T { return &v }

var (
	_ sut.Stage   = (*stage)(nil)
	_ sut.Batcher = (*stage)(nil)
)

// enqueued puts messages into queue q.
func enqueued(ids ...string) sut.Step {
	s := sut.Step{Op: sut.OpEnqueue, Mode: "q"}
	for _, id := range ids {
		s.Messages = append(s.Messages, sut.AsyncMessage{ID: id})
	}
	return s
}

func req(ids ...string) []sut.Request {
	var out []sut.Request
	for _, id := range ids {
		out = append(out, sut.Request{ID: id})
	}
	return out
}

const ms = time.Millisecond

func TestBarriers(t *testing.T) {
	errStage := errors.New("the stage fell down")
	plug := sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: req("p1")}
	queue := sut.Step{Op: sut.OpQueue, Mark: "queued", Requests: req("q1", "q2"), Spacing: 50 * ms}
	for _, c := range []struct {
		says  string
		stage func(*stage)
		steps []sut.Step // the last one is looked at
		ok    bool
		names string        // part of the detail
		took  time.Duration // 0: not looked at
	}{
		{"plug: the request arrives", nil, []sut.Step{plug}, true, "", 1 * ms},
		{"plug: above the limit it does not arrive", nil, []sut.Step{plug, {Op: sut.OpPlug, Mark: "x", Requests: req("p2"), Limit: 200 * ms}}, false, "p2 did not arrive", 200 * ms},
		{"plug: the standard limit is a second", nil, []sut.Step{plug, {Op: sut.OpPlug, Mark: "x", Requests: req("p2")}}, false, "within 1s", sut.ArrivalLimit},
		{"queue: the gauge shows both", nil, []sut.Step{plug, queue}, true, "", 0},
		{"queue: without a gauge the waiting itself shows it", func(s *stage) { s.gaugeless = true }, []sut.Step{plug, queue}, true, "", 0},
		{"queue: with nothing in the way it goes straight through", nil, []sut.Step{queue}, false, "q1 did not stay in the queue", 0},
		{"queue: a refusal is no place in the queue", func(s *stage) { s.refuses = true }, []sut.Step{plug, queue}, false, "did not stay in the queue", 0},
		{"send: no barrier, spaced", nil, []sut.Step{{Op: sut.OpSend, Mark: "x", Requests: req("a", "b", "c"), Spacing: 50 * ms}}, true, "", 150 * ms},
		{"step: a release lets the next one in", nil, []sut.Step{plug, queue, {Op: sut.OpStep, Mark: "x", Count: 2}}, true, "", 1 * ms},
		{"step: nothing is held", nil, []sut.Step{{Op: sut.OpStep, Mark: "x", Count: 1}}, false, "nothing is held", 0},
		{"step: nobody follows", nil, []sut.Step{plug, {Op: sut.OpStep, Mark: "x", Count: 1}}, false, "no arrival within 1s", sut.ArrivalLimit},
		{"step: the watch after an arrival is kept", nil, []sut.Step{plug, queue, {Op: sut.OpStep, Mark: "x", Count: 1, Quiet: 500 * ms}}, true, "", 501 * ms},
		{"release by id", nil, []sut.Step{plug, {Op: sut.OpRelease, Mark: "x", IDs: []string{"p1"}}}, true, "", 0},
		{"release of one that is not held", nil, []sut.Step{plug, queue, {Op: sut.OpRelease, Mark: "x", IDs: []string{"p1", "q1"}}}, false, "q1 is not held", 0},
		{"release at an endpoint that holds nothing", nil, []sut.Step{plug, {Op: sut.OpRelease, Mark: "x", Endpoint: "b"}}, false, "nothing is held at b", 0},
		{"release at an endpoint", nil, []sut.Step{plug, {Op: sut.OpRelease, Mark: "x", Endpoint: "a"}}, true, "", 0},
		{"drain: all end, one behind the other", nil, []sut.Step{plug, queue, {Op: sut.OpDrain, Mark: "x"}}, true, "", 3 * ms},
		{"drain: somebody does not end", func(s *stage) { s.deaf = true }, []sut.Step{plug, queue, {Op: sut.OpDrain, Mark: "x", Limit: 300 * ms}}, false, "3 requests have not ended", 300 * ms},
		{"cancel", nil, []sut.Step{plug, queue, {Op: sut.OpCancel, Mark: "x", IDs: []string{"q1"}}}, true, "", 0},
		{"quiet: exactly so long", nil, []sut.Step{{Op: sut.OpQuiet, Mark: "x", Quiet: 300 * ms}}, true, "", 300 * ms},
		{"arrivals: reached", nil, []sut.Step{plug, {Op: sut.OpArrivals, Mark: "x", IDs: []string{"p1"}}}, true, "", 0},
		{"arrivals: not reached", nil, []sut.Step{plug, queue, {Op: sut.OpArrivals, Mark: "x", IDs: []string{"p1", "q1"}, Limit: 400 * ms}}, false, "q1", 400 * ms},
		{"endings: reached", nil, []sut.Step{plug, {Op: sut.OpRelease, IDs: []string{"p1"}}, {Op: sut.OpEndings, Mark: "x", IDs: []string{"p1"}}}, true, "", 1 * ms},
		{"endings: not reached", nil, []sut.Step{plug, {Op: sut.OpEndings, Mark: "x", IDs: []string{"p1"}, Limit: 400 * ms}}, false, "p1 did not end", 400 * ms},
		{"script: scraped three times", nil, []sut.Step{{Op: sut.OpScript, Mark: "x", Endpoint: "a", Values: &sut.LoadValues{Waiting: 1}}}, true, "", 150 * ms},
		{"script: not scraped", func(s *stage) { s.frozen = true }, []sut.Step{{Op: sut.OpScript, Mark: "x", Endpoint: "a", Values: &sut.LoadValues{}}}, false, "a was scraped 0 times", sut.ScrapeLimit},
		{"probe: closed, taken back", nil, []sut.Step{plug, {Op: sut.OpProbe, Mark: "x", Requests: req("probe1")}}, true, "closed", sut.ProbeQuiet},
		{"probe: answered at once", func(s *stage) { s.refuses, s.limit = true, 0 }, []sut.Step{{Op: sut.OpProbe, Mark: "x", Requests: req("probe1")}}, true, "", 1 * ms},
		{"endpoint-add", nil, []sut.Step{{Op: sut.OpAdd, Mark: "x", Endpoint: "b"}}, true, "", 0},
		{"endpoint-remove", nil, []sut.Step{{Op: sut.OpRemove, Mark: "x", Endpoint: "b"}}, true, "", 0},
		{"shutdown", nil, []sut.Step{{Op: sut.OpShutdown, Mark: "x"}}, true, "", 0},
		{"sample: a page", nil, []sut.Step{{Op: sut.OpSample, Mark: "x"}}, true, "", 0},
		{"sample: no page is evidence, not a failure of the harness", func(s *stage) { s.err = errStage }, []sut.Step{{Op: sut.OpSample, Mark: "x"}}, false, "fell down", 0},
		{"load: as planned", nil, []sut.Step{{Op: sut.OpLoad, Mark: "x", Plan: &plan.Plan{}}}, true, "", 0},
		{"load: not as planned", func(s *stage) { s.invalid = "late by 9 s" }, []sut.Step{{Op: sut.OpLoad, Mark: "x", Plan: &plan.Plan{}}}, false, "late by 9 s", 0},
		{"enqueue: no barrier", nil, []sut.Step{plug, enqueued("m0", "m1")}, true, "", 0},
		{"waiting: the gauge shows both", nil, []sut.Step{plug, enqueued("m0", "m1"), {Op: sut.OpWaiting, Mark: "x", Count: 2}}, true, "", 1 * ms},
		{"waiting: none does any more", nil, []sut.Step{plug, enqueued("m0"), {Op: sut.OpWaiting, Count: 1}, {Op: sut.OpRelease, IDs: []string{"p1"}}, {Op: sut.OpWaiting, Mark: "x"}}, true, "", 1 * ms},
		{"waiting: one of two does", nil, []sut.Step{enqueued("m0", "m1"), {Op: sut.OpWaiting, Mark: "x", Count: 2, Limit: 200 * ms}}, false, "1 wait, not 2 within 200ms", 200 * ms},
		{"waiting: more than these do", nil, []sut.Step{plug, enqueued("m0", "m1"), {Op: sut.OpQuiet, Quiet: ms}, {Op: sut.OpWaiting, Mark: "x", Count: 1, Limit: 200 * ms}}, false, "2 wait, not 1", 200 * ms},
		{"waiting: the standard limit is ten seconds", nil, []sut.Step{{Op: sut.OpWaiting, Mark: "x", Count: 1}}, false, "within 10s", sut.EndLimit},
		{"waiting: without a gauge it takes its time", func(s *stage) { s.gaugeless = true }, []sut.Step{plug, enqueued("m0"), {Op: sut.OpWaiting, Mark: "x", Count: 1}}, true, "", sut.ProbeQuiet},
		{"waiting: without a gauge it takes the time that was asked for", func(s *stage) { s.gaugeless = true }, []sut.Step{{Op: sut.OpWaiting, Mark: "x", Count: 1, Quiet: 300 * ms}}, true, "", 300 * ms},
		{"held: it is", nil, []sut.Step{enqueued("m0"), {Op: sut.OpHeldThere, Mark: "x", IDs: []string{"m0"}}}, true, "", 1 * ms},
		{"held: one waits", nil, []sut.Step{enqueued("m0", "m1"), {Op: sut.OpHeldThere, Mark: "x", IDs: []string{"m0", "m1"}, Limit: 200 * ms}}, false, "m1 is not held within 200ms", 200 * ms},
		{"held: it has been let go", nil, []sut.Step{plug, {Op: sut.OpRelease, IDs: []string{"p1"}}, {Op: sut.OpHeldThere, Mark: "x", IDs: []string{"p1"}}}, false, "p1 is not held within 1s", sut.ArrivalLimit},
		{"tried: served", nil, []sut.Step{enqueued("m0"), {Op: sut.OpArrivals, IDs: []string{"m0"}}, {Op: sut.OpRelease, IDs: []string{"m0"}}, {Op: sut.OpTried, Mark: "x", Count: 1}}, true, "", 1 * ms},
		{"tried: refused", func(s *stage) { s.refuses = true }, []sut.Step{plug, enqueued("m0", "m1"), {Op: sut.OpTried, Mark: "x", Count: 2, Mode: "429", IDs: []string{"m*"}}}, true, "", 1 * ms},
		{"tried: with another status", func(s *stage) { s.refuses = true }, []sut.Step{plug, enqueued("m0"), {Op: sut.OpTried, Mark: "x", Count: 1, Mode: "503"}}, false, "0 of 1 attempts have ended so within 10s", sut.EndLimit},
		{"tried: another message", func(s *stage) { s.refuses = true }, []sut.Step{plug, enqueued("m0"), {Op: sut.OpTried, Mark: "x", Count: 1, IDs: []string{"m1"}, Limit: 200 * ms}}, false, "0 of 1 attempts", 200 * ms},
		{"tried: one of two has not ended", nil, []sut.Step{enqueued("m0", "m1"), {Op: sut.OpArrivals, IDs: []string{"m0"}}, {Op: sut.OpRelease, IDs: []string{"m0"}}, {Op: sut.OpTried, Mark: "x", Count: 2, Limit: 200 * ms}}, false, "1 of 2 attempts", 200 * ms},
		{"batch: the results are there", nil, []sut.Step{enqueued("m0"), {Op: sut.OpArrivals, IDs: []string{"m0"}}, {Op: sut.OpRelease, IDs: []string{"m0"}}, {Op: sut.OpBatch, Mark: "x", Count: 1}}, true, "", 1 * ms},
		{"batch: what is held has none", nil, []sut.Step{enqueued("m0"), {Op: sut.OpBatch, Mark: "x", Count: 1}}, false, "0 of 1 results came within 10s", sut.EndLimit},
		{"batch: what is held is let go, one behind the other", nil, []sut.Step{plug, enqueued("m0", "m1"), {Op: sut.OpBatch, Mark: "x", Count: 2, Mode: "release", IDs: []string{"m*"}}}, true, "", 3 * ms},
		{"batch: what is let go does not end", func(s *stage) { s.deaf = true }, []sut.Step{enqueued("m0"), {Op: sut.OpBatch, Mark: "x", Count: 1, Mode: "release", Limit: 300 * ms}}, false, "0 of 1 results came within 300ms", 300 * ms},
		{"batch: of other messages", nil, []sut.Step{enqueued("m0"), {Op: sut.OpBatch, Mark: "x", Count: 1, Mode: "release", IDs: []string{"n*"}, Limit: 300 * ms}}, false, "0 of 1 results", 300 * ms},
		{"batch: a refusal is no result", func(s *stage) { s.refuses = true }, []sut.Step{plug, enqueued("m0"), {Op: sut.OpBatch, Mark: "x", Count: 1, Limit: 300 * ms}}, false, "0 of 1 results", 300 * ms},
		{"hold", nil, []sut.Step{{Op: sut.OpHold, Mark: "x", Count: 1}}, true, "", 0},
		{"metrics-fault", nil, []sut.Step{{Op: sut.OpFault, Mark: "x", Endpoint: "a", Mode: "hang"}}, true, "", 0},
		{"fail", nil, []sut.Step{{Op: sut.OpFail, Mark: "x", Count: 500}}, true, "", 0},
		{"try-start", nil, []sut.Step{{Op: sut.OpTryStart, Mark: "x", Raw: "valid"}}, true, "", 0},
	} {
		t.Run(c.says, func(t *testing.T) {
			st := newStage()
			if c.stage != nil {
				c.stage(st)
			}
			rec := evidence.NewRecorder("s")
			if err := sut.PlayOn(context.Background(), st, sut.Script{Steps: c.steps}, rec); err != nil {
				t.Fatal(err)
			}
			steps := rec.Run().Steps
			last := steps[len(steps)-1]
			if want := c.steps[len(c.steps)-1]; last.Op != string(want.Op) || last.Mark != want.Mark {
				t.Fatalf("the last record is of %s %s", last.Op, last.Mark)
			}
			if last.OK != c.ok || !strings.Contains(last.Detail, c.names) || c.ok && c.names == "" && last.Detail != "" {
				t.Errorf("ok %v, detail %q", last.OK, last.Detail)
			}
			if got := time.Duration(last.End - last.Start); c.took > 0 && got != c.took {
				t.Errorf("it took %v, want %v", got, c.took)
			}
			if left := st.Unended(); len(left) > 0 {
				t.Errorf("%v have no ending after the script", left)
			}
			for i, s := range steps {
				if s.End < s.Start || i > 0 && s.Start < steps[i-1].End {
					t.Errorf("step %d runs from %d to %d behind one that ends at %d", i, s.Start, s.End, steps[max(i-1, 0)].End)
				}
			}
		})
	}
}

func TestStepsAreRecordedOneByOne(t *testing.T) {
	st := newStage()
	rec := evidence.NewRecorder("s")
	err := sut.PlayOn(context.Background(), st, sut.Script{Steps: []sut.Step{
		{Op: sut.OpPlug, Requests: req("p1")}, {Op: sut.OpQueue, Requests: req("q1")}, {Op: sut.OpStep, Mark: "step", Count: 3}}}, rec)
	if err != nil {
		t.Fatal(err)
	}
	r := rec.Run()
	steps := r.StepsByMark("step")
	if len(steps) != 2 || !slices.Equal(steps[0].IDs, []string{"p1", "q1"}) || steps[1].OK {
		t.Errorf("two of three releases were possible, and the first failure ends the step: %+v", steps)
	}
	if !slices.Equal(st.arrived, []string{"p1", "q1"}) {
		t.Errorf("arrivals %v", st.arrived)
	}
}

func TestHarnessHandles(t *testing.T) {
	st := newStage()
	rec := evidence.NewRecorder("s")
	err := sut.PlayOn(context.Background(), st, sut.Script{Steps: []sut.Step{
		{Op: sut.OpAdd, Endpoint: "b"}, {Op: sut.OpRemove, Endpoint: "b"}, {Op: sut.OpHold, Count: 1}, {Op: sut.OpHold}, {Op: sut.OpSample, Mark: "m"},
		{Op: sut.OpFault, Endpoint: "a", Mode: "hang"}, {Op: sut.OpFail, Count: 500}, {Op: sut.OpStreams, Count: 2}, {Op: sut.OpHealth}, {Op: sut.OpShutdown}, {Op: sut.OpDown}, {Op: sut.OpRestart},
		{Op: sut.OpLabel, Endpoint: "a", Mode: "decode"}, {Op: sut.OpObjective, Objectives: map[string]int{"o": 1}}, {Op: sut.OpSample, Mark: "page", Endpoint: "a"}, {Op: sut.OpSample, Mark: "whole", Mode: "all"},
		{Op: sut.OpTryStart, Mark: "good", Raw: "valid"}, {Op: sut.OpTryStart, Mark: "bad", Raw: "broken"}}}, rec)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"add b", "remove b", "hold on", "hold off", "sample m", "fault a hang", "failure", "streams 2", "health", "shutdown", "restart", "label a decode", "objectives map[o:1]", "sample page of a", "sample whole all"}
	if !slices.Equal(st.calls, want) {
		t.Errorf("asked of the stage: %v, want %v", st.calls, want)
	}
	ps := rec.Run().Processes
	if len(ps) != 2 || ps[0].Case != "good" || !ps[0].Started || ps[1].Case != "bad" || ps[1].Started {
		t.Errorf("start attempts: %+v", ps)
	}
}

func TestMessagesReachTheirQueueAndTheRecord(t *testing.T) {
	st, rec := newStage(), evidence.NewRecorder("s")
	second := enqueued("m2")
	second.Mode, second.Mark = "other", "x"
	if err := sut.PlayOn(context.Background(), st, sut.Script{Steps: []sut.Step{enqueued("m0", "m1"), second}}, rec); err != nil {
		t.Fatal(err)
	}
	if want := []string{"enqueue m0 in q", "enqueue m1 in q", "enqueue m2 in other"}; !slices.Equal(st.calls, want) {
		t.Errorf("asked of the stage: %v, want %v", st.calls, want)
	}
	if steps := rec.Run().Steps; len(steps) != 2 || !slices.Equal(steps[0].IDs, []string{"m0", "m1"}) || !slices.Equal(steps[1].IDs, []string{"m2"}) {
		t.Errorf("steps %+v", steps)
	}
}

// A stage without a batch processor cannot do what is asked of one; that requests wait or are held it can tell all the same.
func TestStagesWithoutBatchProcessor(t *testing.T) {
	for _, c := range []struct {
		step        sut.Step
		unsupported bool
	}{
		{enqueued("m0"), true}, {sut.Step{Op: sut.OpBatch, Mark: "x"}, true}, {sut.Step{Op: sut.OpTried, Mark: "x"}, true},
		{sut.Step{Op: sut.OpWaiting, Mark: "x"}, false}, {sut.Step{Op: sut.OpHeldThere, Mark: "x"}, false},
	} {
		plain := struct{ sut.Stage }{newStage()} // the methods of the interface, and no others
		err := sut.PlayOn(context.Background(), plain, sut.Script{Steps: []sut.Step{c.step}}, evidence.NewRecorder("s"))
		var unsupported *sut.UnsupportedError
		switch {
		case c.unsupported && (!errors.As(err, &unsupported) || unsupported.Feature != sut.BatchProcessor):
			t.Errorf("%s: %v", c.step.Op, err)
		case !c.unsupported && err != nil:
			t.Errorf("%s: %v", c.step.Op, err)
		}
	}
}

func TestErrorsOfTheHarnessEndTheScript(t *testing.T) {
	down := errors.New("the stage fell down")
	for _, c := range []struct {
		says string
		step sut.Step
		want string
	}{
		{"an operation that nobody knows", sut.Step{Op: "juggle", Mark: "x"}, `unknown operation "juggle"`},
		{"an endpoint cannot be added", sut.Step{Op: sut.OpAdd, Mark: "x"}, "fell down"},
		{"an endpoint cannot be removed", sut.Step{Op: sut.OpRemove, Mark: "x"}, "fell down"},
		{"a fault cannot be set", sut.Step{Op: sut.OpFault, Mark: "x"}, "fell down"},
		{"a failure cannot be set", sut.Step{Op: sut.OpFail, Mark: "x"}, "fell down"},
		{"an endpoint cannot be labelled", sut.Step{Op: sut.OpLabel, Mark: "x"}, "fell down"},
		{"objectives cannot be set", sut.Step{Op: sut.OpObjective, Mark: "x"}, "fell down"},
		{"the router does not come back", sut.Step{Op: sut.OpRestart, Mark: "x"}, "fell down"},
		{"a message cannot be enqueued", sut.Step{Op: sut.OpEnqueue, Mark: "x", Mode: "q", Messages: []sut.AsyncMessage{{ID: "m0"}}}, "message m0: the stage fell down"},
		{"what was tried has no status of that name", sut.Step{Op: sut.OpTried, Mark: "x", Count: 1, Mode: "soon"}, `mode "soon" is no status`},
		{"the load cannot be played", sut.Step{Op: sut.OpLoad, Mark: "x", Plan: &plan.Plan{}}, "fell down"},
	} {
		st := newStage()
		st.err = down
		rec := evidence.NewRecorder("s")
		err := sut.PlayOn(context.Background(), st, sut.Script{Steps: []sut.Step{{Op: sut.OpSend, Requests: req("a", "b")}, c.step, {Op: sut.OpQuiet, Mark: "never", Quiet: ms}}}, rec)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "step 1 ("+string(c.step.Op)+" x)") {
			t.Errorf("%s: %v", c.says, err)
		}
		if !slices.Equal(st.drained, []string{"a", "b"}) {
			t.Errorf("%s: abandoned %v", c.says, st.drained)
		}
		r := rec.Run()
		if _, played := r.StepByMark("never"); played {
			t.Errorf("%s: the script went on", c.says)
		}
	}
}

func TestRequestsThatDoNotEndAreAbandoned(t *testing.T) {
	st := newStage()
	st.deaf = true
	if err := sut.PlayOn(context.Background(), st, sut.Script{Steps: []sut.Step{{Op: sut.OpSend, Requests: req("a", "b")}}}, evidence.NewRecorder("s")); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(st.drained, []string{"a", "b"}) {
		t.Errorf("abandoned %v; cancelling them would look like a client's own wish", st.drained)
	}
	st = newStage()
	if err := sut.PlayOn(context.Background(), st, sut.Script{Steps: []sut.Step{{Op: sut.OpPlug, Requests: req("a")}}}, evidence.NewRecorder("s")); err != nil {
		t.Fatal(err)
	}
	if len(st.drained) > 0 || !st.ended["a"] {
		t.Errorf("a held request that the script left open is released, not abandoned: %v", st.drained)
	}
}

func TestTheContextEndsTheScript(t *testing.T) {
	why := errors.New("the operator pressed a key")
	ctx, cancel := context.WithCancelCause(context.Background())
	st := newStage()
	st.deaf = true
	st.later(70*ms, func() { cancel(why) })
	rec := evidence.NewRecorder("s")
	err := sut.PlayOn(ctx, st, sut.Script{Steps: []sut.Step{{Op: sut.OpPlug, Requests: req("a")}, {Op: sut.OpQuiet, Mark: "cut", Quiet: time.Hour}, {Op: sut.OpQuiet, Mark: "never", Quiet: ms}}}, rec)
	if !errors.Is(err, why) || !strings.Contains(err.Error(), "step 2 (quiet never)") {
		t.Errorf("%v", err)
	}
	if !slices.Equal(st.drained, []string{"a"}) {
		t.Errorf("abandoned %v", st.drained)
	}
	r := rec.Run()
	if s, ok := r.StepByMark("cut"); !ok || s.End > int64(time.Second) {
		t.Errorf("the step that was cut short is recorded as it was: %+v", s)
	}
	if _, played := r.StepByMark("never"); played {
		t.Error("the script went on")
	}
}
