package virtual

import (
	"container/heap"
	"time"
)

// agenda is the one event heap: by time, then by the order of entry, so that ties are decided and never accidental.
type agenda struct {
	now   time.Duration
	seq   uint64
	items eventHeap
}

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// after puts do on the agenda d from now.
func (a *agenda) after(d time.Duration, do func()) { a.at(a.now+max(0, d), do) }

func (a *agenda) at(t time.Duration, do func()) {
	a.seq++
	heap.Push(&a.items, event{at: max(t, a.now), seq: a.seq, do: do})
}

// next runs the earliest event that is due by until and tells whether there was one.
func (a *agenda) next(until time.Duration) bool {
	if len(a.items) == 0 || a.items[0].at > until {
		return false
	}
	e := heap.Pop(&a.items).(event)
	a.now = e.at
	e.do()
	return true
}
