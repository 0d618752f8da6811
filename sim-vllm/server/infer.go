package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
)

// call is one inference request while it is inside.
type call struct {
	rec      *evidence.Backend // guarded by Server.mu
	stamp    uint64            // Server.version when rec last changed, guarded by Server.mu
	ended    bool              // guarded by Server.mu
	arrival  time.Duration
	held     bool          // waits, or waited, for its release
	release  chan struct{} // closed on release
	released time.Duration // valid once release is closed
	fail     int           // status of the fault injection, 0: none
}

// infer serves one inference request from body to record.
func (s *Server) infer(w http.ResponseWriter, r *http.Request, at endpoint) {
	// The body is read to its end first: only then does net/http watch the connection and end the context on a disconnect.
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			errorFor(http.StatusRequestEntityTooLarge, fmt.Sprintf("request body is over %d bytes", tooLarge.Limit)).write(w)
		}
		return // the peer left inside its body: nothing has arrived
	}
	arrival := s.clk.Now()
	q, fault := s.parse(at, raw, r.Header)
	odd := r.Header.Get(wire.HeaderAnswer)
	broken, _ := Breaks(odd)
	if _, _, known := Answer(odd); odd != "" && !known && !broken {
		fault = badRequest("header %s is %q, must be one of %s", wire.HeaderAnswer, odd, strings.Join(Answers(), ", "))
		odd = ""
	}
	c := s.arrive(r, raw, q, arrival, fault == nil && odd == "")
	s.event()
	defer s.end(c, evidence.Aborted, nil) // if nothing below decided
	switch {
	case c.fail != 0:
		s.refuse(c, errorFor(c.fail, fmt.Sprintf("simulated failure with status %d", c.fail)), w)
	case broken:
		s.serveBroken(w, c, odd)
	case odd != "":
		s.serveOdd(w, c, odd)
	case fault != nil:
		s.refuse(c, fault, w)
	case c.held:
		s.serveHeld(w, r, q, c)
	default:
		s.serveEngine(w, r, q, c)
	}
}

// refuse answers with an error and keeps the start of its text, so that a client's copy can be compared with it.
func (s *Server) refuse(c *call, e *apiError, w http.ResponseWriter) {
	s.end(c, evidence.Failed, func(rec *evidence.Backend) { rec.Text = e.start() })
	e.write(w)
}

// arrive records the request and decides, in the same breath, whether it fails or is held.
func (s *Server) arrive(r *http.Request, raw []byte, q request, arrival time.Duration, valid bool) *call {
	rec := &evidence.Backend{
		Scenario: r.Header.Get(wire.HeaderScenario), ID: r.Header.Get(wire.HeaderID), Endpoint: s.cfg.Name,
		Arrival: int64(arrival), Released: evidence.Never, FirstToken: evidence.Never, End: evidence.Never, Ending: evidence.Running,
		Stream: q.stream, PromptTokens: q.prompt, Bytes: int64(len(raw)), BodySHA256: hash(raw), JSONSHA256: wire.JSONHash(raw),
		ControlHeaders: []string{}, RequestID: r.Header.Get(wire.HeaderRequestID),
	}
	for _, name := range wire.ControlHeaders {
		if r.Header.Values(name) != nil {
			rec.ControlHeaders = append(rec.ControlHeaders, name)
		}
	}
	slices.Sort(rec.ControlHeaders)
	c := &call{rec: rec, arrival: arrival, release: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.fail = s.fail
	c.held = c.fail == 0 && valid && s.hold && r.Header.Values(wire.HeaderPassHold) == nil
	rec.Held = c.held
	if c.held {
		s.held = append(s.held, c)
	}
	s.log = append(s.log, c)
	s.touch(c)
	s.inFlight++
	return c
}

// end decides how c ended, once; edit, if given, completes the record.
func (s *Server) end(c *call, ending string, edit func(*evidence.Backend)) {
	s.mu.Lock()
	if c.ended {
		s.mu.Unlock()
		return
	}
	c.ended = true
	c.rec.Ending, c.rec.End = ending, int64(s.clk.Now())
	if edit != nil {
		edit(c.rec)
	}
	s.touch(c)
	s.inFlight--
	if c.held {
		s.held = slices.DeleteFunc(s.held, func(h *call) bool { return h == c })
	}
	s.mu.Unlock()
	s.event()
}

// brokeOff turns a finish into an abort: the last write did not reach the peer.
func (s *Server) brokeOff(c *call) {
	s.mu.Lock()
	c.rec.Ending = evidence.Aborted
	s.touch(c)
	s.mu.Unlock()
	s.event()
}

func (s *Server) note(c *call, edit func(*evidence.Backend)) {
	s.mu.Lock()
	edit(c.rec)
	s.touch(c)
	s.mu.Unlock()
	s.event()
}

// serveHeld answers a held request: q.holdAfter tokens of a stream at once, everything else after the release.
func (s *Server) serveHeld(w http.ResponseWriter, r *http.Request, q request, c *call) {
	total, reason := q.tokens()
	out := s.newResponder(w, r, q)
	line := timeline{arrival: c.arrival, scheduled: c.arrival, prompt: q.prompt, maxTokens: q.maxTokens}
	sent := 0
	abort := func() {
		s.meter.heldEnd(&line, finAbort, s.clk.Now())
		s.end(c, evidence.Aborted, func(rec *evidence.Backend) { rec.Tokens = sent })
	}
	if q.stream && q.holdAfter > 0 {
		// The last token carries the finish reason and so never comes before the release.
		sent = min(q.holdAfter, total-1)
		first := s.clk.Now()
		s.meter.heldTokens(&line, sent, first)
		s.note(c, func(rec *evidence.Backend) { // before the peer can see the tokens
			rec.Tokens = sent
			if sent > 0 {
				rec.FirstToken = int64(first)
			}
		})
		out.tokens(0, sent)
		if out.flush() != nil {
			abort()
			return
		}
	}
	select {
	case <-c.release:
	case <-r.Context().Done():
		abort()
		return
	case <-s.closing:
		s.breakOff(w, c, sent, q.stream && q.holdAfter > 0)
		return
	}
	if r.Context().Err() != nil { // left and released at once: nobody gets the answer
		abort()
		return
	}
	now := s.clk.Now()
	if s.cfg.HeldAsWaiting && sent == 0 { // it counted as queued until now
		line.scheduled = c.released
	}
	s.meter.heldTokens(&line, total-sent, now)
	s.meter.heldEnd(&line, finReason(reason == stopped), now)
	s.finish(out, r, c, sent, total, reason, func(rec *evidence.Backend) {
		if rec.FirstToken == evidence.Never {
			rec.FirstToken = int64(now)
		}
	})
}

// serveEngine puts the request into the engine and passes its tokens on as they come to exist.
func (s *Server) serveEngine(w http.ResponseWriter, r *http.Request, q request, c *call) {
	out := s.newResponder(w, r, q)
	total, _ := q.tokens()
	t := s.submit(timeline{arrival: c.arrival, prompt: q.prompt, maxTokens: q.maxTokens}, q.output)
	sent, writes := 0, 0
	var last, pause time.Duration
	wrote := func() {
		now := s.clk.Now()
		if writes++; writes > 1 {
			pause = max(pause, now-last)
		}
		last = now
	}
	complete := func(rec *evidence.Backend) {
		rec.Writes, rec.Pause = writes, int64(pause)
		rec.Tokens, rec.Preemptions = int(t.produced.Load()), int(t.preemptions.Load())
		if rec.Tokens > 0 {
			rec.FirstToken = t.firstNs.Load()
		}
	}
	abort := func() {
		s.abort(t)
		s.end(c, evidence.Aborted, complete)
	}
	for {
		select {
		case <-t.wake:
		case <-r.Context().Done():
			abort()
			return
		case <-s.closing:
			s.breakOff(w, c, sent, q.stream && sent > 0)
			return
		}
		// The ending is read before the count: the count of an ended request is final.
		ending := t.ending.Load()
		produced := int(t.produced.Load())
		switch {
		case ending == refused:
			s.end(c, evidence.Failed, nil)
			errorFor(http.StatusInternalServerError, "the engine refused the request").write(w)
			return
		case ending != pending:
			if q.stream {
				wrote() // the rest goes out with the end
			}
			s.finish(out, r, c, sent, produced, ending, complete)
			return
		case q.stream && min(produced, total-1) > sent:
			// The last token carries the finish reason, so it waits for the ending even if it can be seen a moment before it.
			produced = min(produced, total-1)
			if sent == 0 {
				s.note(c, complete)
			}
			wrote()
			out.tokens(sent, produced)
			if out.flush() != nil {
				abort()
				return
			}
			sent = produced
		}
	}
}

// finish sends what is left after the first sent tokens and ends the record before the peer can see the end of the response, so
// that whoever has seen it finds the record complete.
func (s *Server) finish(out *responder, r *http.Request, c *call, sent, total int, reason int32, edit func(*evidence.Backend)) {
	ending := evidence.Finished
	if r.Context().Err() != nil {
		ending = evidence.Aborted
	}
	s.end(c, ending, func(rec *evidence.Backend) {
		rec.Tokens = total
		edit(rec)
	})
	if ending == evidence.Finished && out.last(sent, total, reason) != nil {
		s.brokeOff(c)
	}
}

// breakOff ends a request because the server closes.
func (s *Server) breakOff(w http.ResponseWriter, c *call, sent int, begun bool) {
	s.end(c, evidence.Failed, func(rec *evidence.Backend) { rec.Tokens = sent })
	if begun {
		panic(http.ErrAbortHandler) // the only way to reset a response that has begun
	}
	errorFor(http.StatusServiceUnavailable, "the server is shutting down").write(w)
}
