package server

import (
	"slices"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/sim-vllm/engine"
)

// SetHold turns holding on or off for requests that arrive from now on; held ones stay held until their release.
func (s *Server) SetHold(on bool) {
	s.mu.Lock()
	s.hold = on
	s.mu.Unlock()
	s.event()
}

// Release lets the oldest held request with this wire.HeaderID be answered; false if none is held.
func (s *Server) Release(id string) bool {
	return s.releaseWhere(func(c *call) bool { return c.rec.ID == id }, 1) == 1
}

// ReleaseAll releases every held request and says how many there were.
func (s *Server) ReleaseAll() int { return s.releaseWhere(func(*call) bool { return true }, -1) }

// releaseWhere releases at most `most` of the held requests that match, oldest first; most < 0: all.
func (s *Server) releaseWhere(match func(*call) bool, most int) int {
	s.mu.Lock()
	now, n := s.clk.Now(), 0
	s.held = slices.DeleteFunc(s.held, func(c *call) bool {
		if n == most || !match(c) {
			return false
		}
		n++
		c.released, c.rec.Released = now, int64(now)
		s.touch(c)
		close(c.release)
		return true
	})
	s.mu.Unlock()
	s.event()
	return n
}

// Held lists the ids of the held requests in order of arrival.
func (s *Server) Held() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, len(s.held))
	for i, c := range s.held {
		ids[i] = c.rec.ID
	}
	return ids
}

// InFlight counts the inference requests inside: held, in the engine, or being answered.
func (s *Server) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}

// Log copies the records in order of arrival; requests still inside have the ending evidence.Running.
func (s *Server) Log() []evidence.Backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := make([]evidence.Backend, len(s.log))
	for i, c := range s.log {
		log[i] = c.copied()
	}
	return log
}

// touch notes that the record of c has changed; s.mu is held.
func (s *Server) touch(c *call) {
	s.version++
	c.stamp = s.version
}

func (c *call) copied() evidence.Backend {
	rec := *c.rec
	rec.ControlHeaders = slices.Clone(rec.ControlHeaders)
	return rec
}

// Scrapes counts the answered GET /metrics.
func (s *Server) Scrapes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scrapes
}

// SetLoad scripts the gauges of waiting, running and KV usage; nil shows the real ones.
func (s *Server) SetLoad(l *Load) {
	if l != nil {
		copied := *l
		l = &copied
	}
	s.mu.Lock()
	s.load = l
	s.mu.Unlock()
	s.event()
}

// SetMetricsFault breaks the metrics page, or mends it with FaultNone; an unknown fault is an error and changes nothing.
func (s *Server) SetMetricsFault(f MetricsFault) error {
	if err := f.validate(); err != nil {
		return err
	}
	var page []byte
	if f == FaultFreeze {
		page = s.page(true)
	}
	s.mu.Lock()
	s.fault, s.frozen = f, page
	close(s.unhang)
	s.unhang = make(chan struct{})
	s.mu.Unlock()
	s.event()
	return nil
}

// Fail answers every inference request that arrives from now on with an error status (400..599) and vLLM's error body; 0 ends it.
// Another status is an error and changes nothing.
func (s *Server) Fail(status int) error {
	if err := validateStatus(status); err != nil {
		return err
	}
	s.mu.Lock()
	s.fail = status
	s.mu.Unlock()
	s.event()
	return nil
}

// Reset makes the server as it was configured: held requests are released, the log and the scrape count are emptied, holding is
// as in Config, and scripted load and faults are off. Requests inside are still answered and still count in InFlight; their
// records are gone. Counters on the metrics page go on, as counters do.
func (s *Server) Reset() {
	s.mu.Lock()
	s.hold, s.load, s.fail = s.cfg.Hold, nil, 0
	s.mu.Unlock()
	s.ReleaseAll()
	if err := s.SetMetricsFault(FaultNone); err != nil {
		panic(err) // a known fault
	}
	s.mu.Lock()
	s.log, s.scrapes = nil, 0
	s.version++
	s.mu.Unlock()
	s.event()
}

// LateSteps counts the engine steps that began a whole step or more after their time, because this process was not scheduled. A
// run with many is void: the simulated GPU was slower than configured. It says nothing under the instant preset, whose steps are
// shorter than any timer.
func (s *Server) LateSteps() int64 { return s.late.Load() }

// Stats is the engine's state at the last instant it was busy with.
func (s *Server) Stats() engine.Stats {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	return s.meter.engine
}
