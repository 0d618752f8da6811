package plan

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// EventKind says what happened.
type EventKind uint8

// The events.
const (
	Tick      EventKind = iota // time passed
	Completed                  // a request ended, in whatever way (Event.ID)
)

// Event is one input of the cursor.
type Event struct {
	Kind EventKind
	ID   string
}

// Out tells the driver to send a request now.
type Out struct {
	Request  *Request      // of the plan; not to be changed
	Intended time.Duration // when it was due; latency counts from here even if the driver is late
}

// Cursor walks a plan: it says which request is due when. It decides nothing about what is in flight, so a slow server never
// delays an open-loop request.
type Cursor struct {
	open      []*Request // by At, then ID
	loops     loopHeap   // loops that may still send, the earliest first
	flying    map[string]*loop
	exhausted int
}

// loop is one closed-loop worker.
type loop struct {
	think, stop time.Duration
	queue       []*Request
	inFlight    bool
	key         time.Duration // not in flight: when the next request is due; in flight: stop
	pos         int           // in the heap, -1 when the loop has ended
	index       int           // in the plan, breaks ties
}

// NewCursor starts at the beginning of a valid plan, which must not change while the cursor lives.
func NewCursor(p Plan) (*Cursor, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	c := &Cursor{flying: map[string]*loop{}}
	loops := make([]*loop, len(p.Loops))
	for i, l := range p.Loops {
		loops[i] = &loop{think: l.Think, stop: p.end(l), key: l.Start, index: i}
	}
	for i := range p.Requests {
		r := &p.Requests[i]
		if r.Loop == 0 {
			c.open = append(c.open, r)
		} else {
			loops[r.Loop-1].queue = append(loops[r.Loop-1].queue, r)
		}
	}
	for _, l := range loops {
		l.pos = -1
		if len(l.queue) > 0 && l.key < l.stop {
			heap.Push(&c.loops, l)
		}
	}
	return c, nil
}

// Step tells the cursor that it is now and what happened, and appends the requests to send, the longest due first.
func (c *Cursor) Step(now time.Duration, ev Event, out []Out) []Out {
	if ev.Kind == Completed {
		c.completed(now, ev.ID)
	}
	from := len(out)
	for len(c.open) > 0 && c.open[0].At <= now {
		out = append(out, Out{c.open[0], c.open[0].At})
		c.open = c.open[1:]
	}
	for len(c.loops) > 0 && c.loops[0].key <= now {
		l := c.loops[0]
		if l.inFlight { // its stop has passed
			heap.Remove(&c.loops, l.pos)
			continue
		}
		r := l.queue[0]
		l.queue = l.queue[1:]
		out = append(out, Out{r, l.key})
		if len(l.queue) == 0 {
			c.exhausted++
			heap.Remove(&c.loops, l.pos)
			continue
		}
		l.inFlight, l.key = true, l.stop
		c.flying[r.ID] = l
		heap.Fix(&c.loops, l.pos)
	}
	slices.SortStableFunc(out[from:], func(a, b Out) int {
		return cmp.Or(cmp.Compare(a.Intended, b.Intended), cmp.Compare(a.Request.ID, b.Request.ID))
	})
	return out
}

// completed makes the next request of the loop due, if that is before the loop's stop. Open-loop, unknown and repeated ids change
// nothing.
func (c *Cursor) completed(now time.Duration, id string) {
	l := c.flying[id]
	if l == nil {
		return
	}
	delete(c.flying, id)
	if l.pos < 0 {
		return
	}
	l.inFlight, l.key = false, now+l.think
	if l.key >= l.stop {
		heap.Remove(&c.loops, l.pos)
		return
	}
	heap.Fix(&c.loops, l.pos)
}

// Deadline is the next instant at which the cursor wants a Tick; false if none. For a loop whose request is in flight that is the
// loop's stop.
func (c *Cursor) Deadline() (time.Duration, bool) {
	switch {
	case len(c.open) == 0 && len(c.loops) == 0:
		return 0, false
	case len(c.open) == 0:
		return c.loops[0].key, true
	case len(c.loops) == 0:
		return c.open[0].At, true
	}
	return min(c.open[0].At, c.loops[0].key), true
}

// Done tells that nothing is left to send.
func (c *Cursor) Done() bool { return len(c.open) == 0 && len(c.loops) == 0 }

// Exhausted counts the loops that have sent their last planned request before their stop. Such a loop offers less load than the
// plan means to: its requests ended faster than Compile expects (minCycle).
func (c *Cursor) Exhausted() int { return c.exhausted }

// loopHeap orders loops by key, then index.
type loopHeap []*loop

func (h loopHeap) Len() int { return len(h) }

func (h loopHeap) Less(i, j int) bool {
	return h[i].key < h[j].key || h[i].key == h[j].key && h[i].index < h[j].index
}

func (h loopHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h *loopHeap) Push(x any) {
	l := x.(*loop)
	l.pos = len(*h)
	*h = append(*h, l)
}

func (h *loopHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.pos = -1
	return l
}
