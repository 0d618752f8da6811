package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/llm-weir/weir/sim-vllm/engine"
)

// inbox carries events to the engine goroutine. It is unbounded, as vLLM's queue is; its length is bounded by the requests inside.
type inbox struct {
	mu     sync.Mutex
	mail   []message
	notify chan struct{} // one slot
}

type message struct {
	ev engine.Event
	t  *ticket // of Admit
}

func (b *inbox) put(m message) {
	b.mu.Lock()
	b.mail = append(b.mail, m)
	b.mu.Unlock()
	select {
	case b.notify <- struct{}{}:
	default:
	}
}

// take swaps the mail for an empty slice.
func (b *inbox) take(empty []message) []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	mail := b.mail
	b.mail = empty[:0]
	return mail
}

// Endings of a ticket.
const (
	pending int32 = iota
	stopped
	reachedLength
	refused
)

// ticket is what the engine goroutine and the handler of one request share. The handler reads the atomics only.
type ticket struct {
	id          uint64
	wake        chan struct{} // one slot
	produced    atomic.Int64  // tokens
	firstNs     atomic.Int64  // instant of the first token, valid once produced > 0
	preemptions atomic.Int64
	ending      atomic.Int32
	line        timeline // the engine goroutine's
}

func (t *ticket) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// submit hands a request to the engine.
func (s *Server) submit(line timeline, outputTokens int) *ticket {
	t := &ticket{id: s.seq.Add(1), wake: make(chan struct{}, 1), line: line}
	s.inbox.put(message{engine.Event{Kind: engine.Admit, ID: t.id, PromptTokens: line.prompt, OutputTokens: outputTokens,
		MaxTokens: line.maxTokens}, t})
	return t
}

// abort tells the engine that nobody waits for t any more; it frees the blocks at the next step boundary.
func (s *Server) abort(t *ticket) {
	s.inbox.put(message{ev: engine.Event{Kind: engine.Abort, ID: t.id}})
}

// driver is the state of the engine goroutine.
type driver struct {
	s       *Server
	e       *engine.Engine
	tickets map[uint64]*ticket
	outs    []engine.Out
}

// drive owns the engine until Close. It sleeps to absolute deadlines, so that a late wake-up is not added to the next step.
func (s *Server) drive(e *engine.Engine) {
	defer close(s.stopped)
	d := driver{s: s, e: e, tickets: map[uint64]*ticket{}}
	timer := s.clk.Timer(time.Hour)
	defer timer.Stop()
	var mail []message
	for {
		mail = s.inbox.take(mail)
		now := s.clk.Now()
		d.catchUp(now)
		for _, m := range mail {
			if m.t != nil {
				d.tickets[m.t.id] = m.t
			}
			d.step(now, m.ev)
		}
		clear(mail)
		var due <-chan time.Time
		if end, ok := e.Deadline(); ok {
			timer.Reset(end - s.clk.Now())
			due = timer.C
		}
		select {
		case <-s.closing:
			return
		case <-s.inbox.notify:
		case <-due:
		}
	}
}

// catchUp runs every step that is due. More than one means that the goroutine woke up a whole step too late: the simulated GPU
// would then look slower than it is, so it is counted.
func (d *driver) catchUp(now time.Duration) {
	for n := 0; ; n++ {
		end, ok := d.e.Deadline()
		if !ok || end > now {
			return
		}
		if n > 0 {
			d.s.late.Add(1)
		}
		d.s.meter.iteration(d.e.Stats().LastBatch.Tokens)
		d.step(end, engine.Event{})
	}
}

func (d *driver) step(now time.Duration, ev engine.Event) {
	d.outs = d.e.Step(now, ev, d.outs[:0])
	d.s.meter.setEngine(d.e.Stats()) // first, so that whoever has seen a response end finds the gauges past it
	for _, o := range d.outs {
		t := d.tickets[o.ID]
		if t == nil {
			continue
		}
		d.s.meter.observe(&t.line, o)
		switch o.Kind {
		case engine.FirstToken:
			t.firstNs.Store(int64(o.At))
			t.produced.Store(1)
		case engine.Token:
			t.produced.Store(int64(o.Tokens))
		case engine.Preempted:
			t.preemptions.Add(1)
			continue
		case engine.Finished:
			if o.Reason == engine.Stop {
				t.ending.Store(stopped)
			} else {
				t.ending.Store(reachedLength)
			}
			delete(d.tickets, o.ID)
		case engine.Aborted:
			delete(d.tickets, o.ID)
		case engine.Refused:
			t.ending.Store(refused)
			delete(d.tickets, o.ID)
		}
		t.poke()
	}
}
