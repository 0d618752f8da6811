package flowcontrol

import "time"

// waits knows when each queued entry has waited long enough.
//
//	deadline = max(entry, last regime change) + min(budget of the regime, limit of the request)
//
// The regime is whether the pool has endpoints; a change restarts every budget (FC-TTL-07, FC-TTL-08). Entries without a limit of
// their own share one budget, so their order of expiry is that of entry and a list suffices; the others are in a heap.
type waits struct {
	common list
	own    heap
	since  time.Duration // last regime change
	budget time.Duration // of the present regime; 0: none
}

func (w *waits) push(e *Entry) {
	if e.Request.TTL > 0 {
		e.expires = w.deadline(e)
		w.own.push(e, waitSlot)
		return
	}
	w.common.push(e, waitSlot)
}

func (w *waits) remove(e *Entry) {
	if e.Request.TTL > 0 {
		w.own.remove(e, waitSlot)
		return
	}
	w.common.remove(e, waitSlot)
}

// deadline is asked only for entries that have one: a budget or a limit of their own.
func (w *waits) deadline(e *Entry) time.Duration {
	return later(max(e.entered, w.since), shorter(w.budget, e.Request.TTL))
}

// next is the entry that expires first and when, or nil.
func (w *waits) next() (*Entry, time.Duration) {
	a, b := w.common.head, w.own.head()
	if w.budget <= 0 {
		a = nil
	}
	switch {
	case a == nil && b == nil:
		return nil, 0
	case a == nil:
		return b, b.expires
	}
	at := w.deadline(a)
	if b != nil && (b.expires < at || b.expires == at && b.seq < a.seq) {
		return b, b.expires
	}
	return a, at
}

// enter begins a regime.
func (w *waits) enter(now, budget time.Duration) {
	w.since, w.budget = now, budget
	for _, e := range w.own {
		e.expires = w.deadline(e)
	}
	w.own.init(waitSlot)
}
