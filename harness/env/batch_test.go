package env_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
)

// noted is a log whose clock goes on by a millisecond whenever it is read.
type noted struct {
	*env.BatchLog
	rec  *evidence.Recorder
	woke int
}

func newNoted() *noted {
	n, now := &noted{rec: evidence.NewRecorder("s")}, time.Duration(0)
	n.BatchLog = env.NewBatchLog(func() time.Duration { now += time.Millisecond; return now }, n.rec, func() { n.woke++ })
	return n
}

// attempts hands over what was noted.
func (n *noted) attempts() []evidence.Attempt {
	n.Flush()
	var out []evidence.Attempt
	for _, o := range n.rec.Run().Observations {
		if o.Attempt != nil {
			out = append(out, *o.Attempt)
		}
	}
	return out
}

// call makes one attempt for a message through the log.
func (n *noted) call(ctx context.Context, url, id string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set(wire.HeaderID, id)
	return n.Transport(http.DefaultTransport).RoundTrip(r)
}

// serve answers with a status and a body; one that is cut promises more than comes.
func serve(t *testing.T, status int, body string, cut bool) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if status == http.StatusTooManyRequests {
			w.Header().Set(wire.HeaderDroppedReason, wire.ReasonEvicted)
		}
		if cut {
			w.Header().Set("Content-Length", "1000")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // whoever went away is what the test is about
		if cut {
			_ = http.NewResponseController(w).Flush() // as above
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestTransportNotesHowAnswersEnd(t *testing.T) {
	for _, c := range []struct {
		says   string
		status int
		body   string
		cut    bool
		unread bool // the body is closed before its end
		ending string
		reason string
	}{
		{"read to its end", 200, "fine", false, false, evidence.Answered, ""},
		{"a refusal with its reason", 429, "later", false, false, evidence.Answered, wire.ReasonEvicted},
		{"an answer without a body", 503, "", false, false, evidence.Answered, ""},
		{"cut off in the middle", 200, "fi", true, false, evidence.BrokenOff, ""},
		{"cut off before the first byte", 200, "", true, false, evidence.BrokenOff, ""},
		{"left unread", 200, "fine", false, true, evidence.BrokenOff, ""},
	} {
		t.Run(c.says, func(t *testing.T) {
			n := newNoted()
			res, err := n.call(context.Background(), serve(t, c.status, c.body, c.cut), "m")
			if err != nil {
				t.Fatal(err)
			}
			// Headers are no answer yet: what is counted as ended now could still break off.
			if n.Tried(nil, 0) != 0 || n.woke != 0 {
				t.Errorf("it has ended before its body was read")
			}
			if !c.unread {
				got, err := io.ReadAll(res.Body)
				if string(got) != c.body || (err != nil) != c.cut {
					t.Errorf("body %q, %v", got, err)
				}
			}
			if err := res.Body.Close(); err != nil {
				t.Error(err)
			}
			if n.Tried([]string{"m"}, c.status) != 1 || n.woke == 0 {
				t.Errorf("its end was not noted, or nobody heard of it")
			}
			as := n.attempts()
			if len(as) != 1 {
				t.Fatalf("attempts %+v", as)
			}
			if a := as[0]; a.Ending != c.ending || a.Status != c.status || a.Reason != c.reason || a.ID != "m" || a.Nth != 1 || a.Method != http.MethodPost || a.End != int64(2*time.Millisecond) {
				t.Errorf("%+v", a)
			}
			if !slices.Equal(as[0].Headers[wire.HeaderID], []string{"m"}) {
				t.Errorf("headers %v", as[0].Headers)
			}
		})
	}
}

// A call that the processor takes back is its own doing; one that nobody accepts is not.
func TestTransportNotesCallsWithoutAnswer(t *testing.T) {
	arrived := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	defer silent.Close()
	n := newNoted()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { <-arrived; cancel() }()
	if _, err := n.call(ctx, silent.URL, "m"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	if _, err := n.call(context.Background(), gone.URL, "m"); err == nil {
		t.Error("nobody listens there")
	}
	if n.Tried(nil, 0) != 2 || n.Tried(nil, 200) != 0 || n.woke != 2 {
		t.Errorf("%d have ended, %d times it was heard of", n.Tried(nil, 0), n.woke)
	}
	as := n.attempts()
	if len(as) != 2 {
		t.Fatalf("attempts %+v", as)
	}
	for i, ending := range []string{evidence.Dropped, evidence.BrokenOff} {
		if a := as[i]; a.Ending != ending || a.Status != 0 || a.End == evidence.Never || a.Nth != i+1 {
			t.Errorf("%+v", a)
		}
	}
}

// What is still on its way is in the record too, once.
func TestFlushHandsOverWhatHasNotEnded(t *testing.T) {
	n := newNoted()
	n.Begin("m", nil)
	n.Begin("n", nil)
	n.End(n.Begin("m", nil), evidence.Answered, 200, "")
	for range 2 {
		as := n.attempts()
		if len(as) != 3 {
			t.Fatalf("attempts %+v", as)
		}
		for i, want := range []evidence.Attempt{{ID: "m", Nth: 1, Ending: evidence.Inside, End: evidence.Never}, {ID: "n", Nth: 1, Ending: evidence.Inside, End: evidence.Never},
			{ID: "m", Nth: 2, Ending: evidence.Answered, End: int64(4 * time.Millisecond)}} {
			if a := as[i]; a.ID != want.ID || a.Nth != want.Nth || a.Ending != want.Ending || a.End != want.End {
				t.Errorf("attempt %d: %+v, want %+v", i, a, want)
			}
		}
	}
}

func TestResultsAreCountedAndKept(t *testing.T) {
	n := newNoted()
	for _, raw := range []string{`{"id":"b0","status_code":200,"payload":"fine"}`, `{"id":"b1","payload":"{}","error_code":"CANCELLED","error_message":"why"}`, `{"id":"b1","payload":""}`, `no result`} {
		n.Result([]byte(raw))
	}
	for _, c := range []struct {
		ids  []string
		want int
	}{{nil, 4}, {[]string{"b*"}, 3}, {[]string{"b0"}, 1}, {[]string{"b0", "b1"}, 3}, {[]string{"b"}, 0}, {[]string{""}, 1}} {
		if got := n.Results(c.ids); got != c.want {
			t.Errorf("%q: %d results, want %d", c.ids, got, c.want)
		}
	}
	os := n.rec.Run().Observations
	if len(os) != 4 || n.woke != 4 {
		t.Fatalf("%d observations, heard of %d times", len(os), n.woke)
	}
	if r := os[1].Result; *r != (evidence.FinalResult{List: sut.BatchResults, ID: "b1", Code: "CANCELLED", Message: "why", Payload: "{}", Raw: r.Raw}) || r.Raw == "" {
		t.Errorf("%+v", *r)
	}
	if r := os[3].Result; *r != (evidence.FinalResult{List: sut.BatchResults, Raw: "no result"}) {
		t.Errorf("%+v", *r)
	}
}

// A deadline is a whole second of the wall clock, so that the message has at least the time that was asked for.
func TestDeadlinesAreRoundedUp(t *testing.T) {
	const second = 1_700_000_000
	for _, c := range []struct {
		says        string
		into, after time.Duration // into the second at which it is submitted
		want        int64
	}{
		{"on a whole second", 0, 3 * time.Second, second + 3},
		{"a millisecond later", time.Millisecond, 3 * time.Second, second + 4},
		{"a millisecond before the next second", 999 * time.Millisecond, 3 * time.Second, second + 4},
		{"what adds up to a whole second", 500 * time.Millisecond, 2500 * time.Millisecond, second + 3},
		{"less than a second", 100 * time.Millisecond, 200 * time.Millisecond, second + 1},
		{"none is a minute", 0, 0, second + 60},
		{"none is a minute, rounded up", time.Millisecond, 0, second + 61},
	} {
		n, now := newNoted(), time.Unix(second, 0).Add(c.into)
		r := env.BatchRequest("s", sut.AsyncMessage{ID: "m", Deadline: c.after}, now)
		if r.Deadline != c.want || r.Created != second {
			t.Errorf("%s: due at %d, want %d; made at %d", c.says, r.Deadline, c.want, r.Created)
		}
		epoch := time.Unix(second-10, 0) // of the scenario
		n.Submitted("q", r, epoch)
		os := n.rec.Run().Observations
		if len(os) != 1 || *os[0].Message != (evidence.Message{ID: "m", Queue: "q", Deadline: (c.want - second + 10) * int64(time.Second)}) {
			t.Errorf("%s: %+v", c.says, os)
		}
	}
}

func TestMessagesAreKnownByTheirID(t *testing.T) {
	own := map[string]string{wire.HeaderHoldAfter: "3", wire.HeaderScenario: "another"}
	r := env.BatchRequest("s", sut.AsyncMessage{ID: "m", Headers: own, Metadata: map[string]string{"userid": "a"}, Endpoint: "/v1/chat/completions", Payload: `{"prompt":"p"}`}, time.Unix(0, 0))
	if r.ID != "m" || r.Headers[wire.HeaderID] != "m" || r.Headers[wire.HeaderHoldAfter] != "3" || r.Headers[wire.HeaderScenario] != "another" {
		t.Errorf("headers %v", r.Headers)
	}
	if r.Metadata["userid"] != "a" || r.Endpoint != "/v1/chat/completions" || string(r.Payload) != `{"prompt":"p"}` {
		t.Errorf("%+v", r)
	}
	if len(own) != 2 {
		t.Errorf("the script's own headers were written to: %v", own)
	}
	r = env.BatchRequest("s", sut.AsyncMessage{ID: "m"}, time.Unix(0, 0))
	if r.Headers[wire.HeaderScenario] != "s" || string(r.Payload) != string(env.Body(sut.Request{ID: "m"})) || len(r.Payload) == 0 {
		t.Errorf("without a payload: %s, %v", r.Payload, r.Headers)
	}
}
