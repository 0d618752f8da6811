package asyncproc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/redisq"
)

// writer ends deliveries in the broker. Many ends share one round trip; an end that the broker did not take is repeated until it does,
// because the processor has nothing else that remembers it.
type writer struct {
	broker broker
	log    *slog.Logger
	ended  func(op *redisq.Op, tag any, done bool) // called for each op once it is over

	mu     sync.Mutex
	queue  []entry
	inside int           // queued or being written
	wake   chan struct{} // one value: there is work
	room   chan struct{} // one value: there may be room again
	idle   chan struct{} // one value: nothing is inside
}

type entry struct {
	op  redisq.Op
	tag any
	// unsure: an attempt failed without the broker's word on it, and may have been carried out.
	unsure bool
}

const (
	writeBatch = 128
	// writeLimit is how many ends may wait before no more is pulled. Each holds a payload or a result.
	writeLimit = 4096
	// writePause grows from the first to the last while the broker does not answer.
	writePauseFirst = 50 * time.Millisecond
	writePauseLast  = 2 * time.Second
)

func newWriter(b broker, log *slog.Logger, ended func(*redisq.Op, any, bool)) *writer {
	return &writer{broker: b, log: log, ended: ended, wake: make(chan struct{}, 1), room: make(chan struct{}, 1), idle: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add queues an end; it never blocks.
func (w *writer) add(op redisq.Op, tag any) {
	w.mu.Lock()
	w.queue = append(w.queue, entry{op: op, tag: tag})
	w.inside++
	w.mu.Unlock()
	signal(w.wake)
}

// waitRoom waits until few enough ends are inside; false if ctx ends first.
func (w *writer) waitRoom(ctx context.Context) bool {
	for {
		w.mu.Lock()
		free := w.inside < writeLimit
		w.mu.Unlock()
		if free {
			signal(w.room) // for whoever else waits
			return true
		}
		select {
		case <-w.room:
		case <-ctx.Done():
			return false
		}
	}
}

// flush waits until nothing is inside; false if ctx ends first.
func (w *writer) flush(ctx context.Context) bool {
	for {
		w.mu.Lock()
		empty := w.inside == 0
		w.mu.Unlock()
		if empty {
			return true
		}
		select {
		case <-w.idle:
		case <-ctx.Done():
			return false
		}
	}
}

// run writes until ctx ends; what is inside then stays unwritten.
func (w *writer) run(ctx context.Context) {
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		for {
			w.mu.Lock()
			n := min(len(w.queue), writeBatch)
			batch := w.queue[:n:n]
			w.queue = w.queue[n:]
			if len(w.queue) == 0 {
				w.queue = nil // the array that was cut from the front is given up
			}
			w.mu.Unlock()
			if n == 0 || !w.write(ctx, batch) {
				break
			}
		}
	}
}

// write repeats what fails; false if ctx ends first.
func (w *writer) write(ctx context.Context, batch []entry) bool {
	pause, attempt := writePauseFirst, 0
	for len(batch) > 0 {
		ops := make([]redisq.Op, len(batch))
		for i := range batch {
			ops[i] = batch[i].op
		}
		outcomes := w.broker.Apply(ctx, ops)
		attempt++
		var again []entry
		var err error
		for i, o := range outcomes {
			if o.Err == nil {
				// A lease that is gone after an attempt of unknown outcome was most likely ended by that very attempt.
				w.done(batch[i], o.Done || batch[i].unsure)
				continue
			}
			err = o.Err
			batch[i].unsure = batch[i].unsure || !redisq.Refused(err)
			if f, ok := w.broker.(forgetful); ok && ops[i].Kind == redisq.Finish && attempt > len(f.ResultPauses()) {
				w.log.Error("result lost: the broker did not take it", "request", ops[i].ID, "attempts", attempt, "error", o.Err)
				w.done(batch[i], false)
				continue
			}
			again = append(again, batch[i])
		}
		if batch = again; len(batch) == 0 {
			return true
		}
		w.log.Warn("the broker does not take what ends; trying again", "messages", len(batch), "pause", pause, "error", err)
		wait := pause
		if f, ok := w.broker.(forgetful); ok && attempt <= len(f.ResultPauses()) {
			wait = f.ResultPauses()[attempt-1]
		}
		if !clock.Sleep(ctx, wait) {
			return false
		}
		pause = min(2*pause, writePauseLast)
	}
	return true
}

func (w *writer) done(e entry, done bool) {
	w.ended(&e.op, e.tag, done)
	w.mu.Lock()
	w.inside--
	empty, free := w.inside == 0, w.inside < writeLimit
	w.mu.Unlock()
	if free {
		signal(w.room)
	}
	if empty {
		signal(w.idle)
	}
}
