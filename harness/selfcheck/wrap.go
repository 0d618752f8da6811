package selfcheck

import (
	"time"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/picker"
)

// wrapper is a machine around the reference: it may change or drop events on the way in, change decisions on the way out, and hold
// events back. The reference itself knows nothing of it.
type wrapper struct {
	inner picker.Machine
	// in changes an event; false drops it.
	in func(now time.Duration, ev *picker.Event) bool
	// out changes the decisions, those of this step only.
	out func(now time.Duration, outs []picker.Out) []picker.Out
	// delay holds an event back for that long; 0 lets it through.
	delay func(ev picker.Event) time.Duration

	late []lateEvent
}

type lateEvent struct {
	at time.Duration
	ev picker.Event
}

// Step implements picker.Machine.
func (w *wrapper) Step(now time.Duration, ev picker.Event, out []picker.Out) []picker.Out {
	start := len(out)
	for len(w.late) > 0 && w.late[0].at <= now {
		due := w.late[0].ev
		w.late = w.late[1:]
		out = w.inner.Step(now, due, out)
	}
	if w.in != nil && !w.in(now, &ev) {
		ev = picker.Event{Kind: picker.Tick}
	}
	if w.delay != nil {
		if d := w.delay(ev); d > 0 {
			w.late = append(w.late, lateEvent{now + d, ev})
			ev = picker.Event{Kind: picker.Tick}
		}
	}
	out = w.inner.Step(now, ev, out)
	if w.out == nil {
		return out
	}
	return append(out[:start], w.out(now, append([]picker.Out(nil), out[start:]...))...)
}

// Deadline implements picker.Machine.
func (w *wrapper) Deadline() (time.Duration, bool) {
	at, ok := w.inner.Deadline()
	if len(w.late) > 0 && (!ok || w.late[0].at < at) {
		return w.late[0].at, true
	}
	return at, ok
}

// Pressure implements picker.Machine.
func (w *wrapper) Pressure() picker.Pressure { return w.inner.Pressure() }

// swapper lets the reference decide when something is dispatched, and another rule decides what: it exchanges the identities of the
// request that the reference took and of the one that the rule prefers, among the waiting requests of one band.
type swapper struct {
	inner picker.Machine
	// better tells whether candidate b should go instead of a.
	better  func(a, b waiting) bool
	waiting []waiting
	inside  map[uint64]uint64 // the caller's id -> the reference's
	outside map[uint64]uint64
}

type waiting struct {
	id       uint64 // the caller's
	request  picker.Request
	sequence int
}

func newSwapper(m picker.Machine, better func(a, b waiting) bool) *swapper {
	return &swapper{inner: m, better: better, inside: map[uint64]uint64{}, outside: map[uint64]uint64{}}
}

// Step implements picker.Machine.
func (s *swapper) Step(now time.Duration, ev picker.Event, out []picker.Out) []picker.Out {
	if ev.Kind == picker.Arrive {
		s.inside[ev.ID], s.outside[ev.ID] = ev.ID, ev.ID
		s.waiting = append(s.waiting, waiting{ev.ID, ev.Request, len(s.inside)})
	} else if id, ok := s.inside[ev.ID]; ok && ev.ID != 0 {
		ev.ID = id
	}
	start := len(out)
	out = s.inner.Step(now, ev, out)
	for i := start; i < len(out); i++ {
		id, ok := s.outside[out[i].ID]
		if !ok {
			continue
		}
		if out[i].Kind == picker.Dispatch {
			id = s.exchange(id)
		}
		out[i].ID = id
		s.forget(id)
	}
	return out
}

// exchange gives the identity that the rule prefers to whatever the reference took.
func (s *swapper) exchange(taken uint64) uint64 {
	at := -1
	for i, w := range s.waiting {
		if w.id == taken {
			at = i
		}
	}
	if at < 0 {
		return taken
	}
	best := at
	for i, w := range s.waiting {
		if s.better(s.waiting[best], w) {
			best = i
		}
	}
	other := s.waiting[best].id
	a, b := s.inside[taken], s.inside[other]
	s.inside[taken], s.inside[other] = b, a
	s.outside[a], s.outside[b] = other, taken
	return other
}

func (s *swapper) forget(id uint64) {
	for i, w := range s.waiting {
		if w.id == id {
			s.waiting = append(s.waiting[:i:i], s.waiting[i+1:]...)
			return
		}
	}
}

// Deadline implements picker.Machine.
func (s *swapper) Deadline() (time.Duration, bool) { return s.inner.Deadline() }

// Pressure implements picker.Machine.
func (s *swapper) Pressure() picker.Pressure { return s.inner.Pressure() }

// overstayer stops dispatched requests after the wait limit, as if it covered running as well.
type overstayer struct {
	picker.Machine
	limit   time.Duration
	running []lateEvent
}

// Step implements picker.Machine.
func (o *overstayer) Step(now time.Duration, ev picker.Event, out []picker.Out) []picker.Out {
	start := len(out)
	out = o.Machine.Step(now, ev, out)
	for _, d := range out[start:] {
		if d.Kind == picker.Dispatch {
			o.running = append(o.running, lateEvent{now + o.limit, picker.Event{ID: d.ID}})
		}
	}
	for len(o.running) > 0 && o.running[0].at <= now {
		out = append(out, picker.Out{Kind: picker.Evict, ID: o.running[0].ev.ID, Outcome: wire.Dispatched})
		o.running = o.running[1:]
	}
	return out
}

// Deadline implements picker.Machine.
func (o *overstayer) Deadline() (time.Duration, bool) {
	at, ok := o.Machine.Deadline()
	if len(o.running) > 0 && (!ok || o.running[0].at < at) {
		return o.running[0].at, true
	}
	return at, ok
}
