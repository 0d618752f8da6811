package flowcontrol

// link is an entry's place in one intrusive list.
type link struct{ prev, next *Entry }

// list is an intrusive list of entries over one slot: every operation is O(1) and none allocates.
type list struct {
	head, tail *Entry
}

func (l *list) push(e *Entry, slot int) {
	e.links[slot] = link{prev: l.tail}
	if l.tail == nil {
		l.head = e
	} else {
		l.tail.links[slot].next = e
	}
	l.tail = e
}

func (l *list) remove(e *Entry, slot int) {
	k := e.links[slot]
	if k.prev == nil {
		l.head = k.next
	} else {
		k.prev.links[slot].next = k.next
	}
	if k.next == nil {
		l.tail = k.prev
	} else {
		k.next.links[slot].prev = k.prev
	}
	e.links[slot] = link{}
}

// heap is a binary heap of entries over one slot that knows where each entry is, so that any of them can be removed.
type heap []*Entry

// before is the order of the heap in a slot. Ties are broken by seq, so that it is total and no order depends on the heap's shape.
func before(a, b *Entry, slot int) bool {
	switch slot {
	case waitSlot:
		if a.expires != b.expires {
			return a.expires < b.expires
		}
		return a.seq < b.seq
	case victimSlot:
		if a.Request.Priority != b.Request.Priority {
			return a.Request.Priority < b.Request.Priority
		}
		return a.seq > b.seq // the newest dispatch has the least to lose (FC-EVI-08)
	default:
		if a.key != b.key {
			return a.key < b.key
		}
		return a.seq < b.seq
	}
}

func (h heap) head() *Entry {
	if len(h) == 0 {
		return nil
	}
	return h[0]
}

func (h *heap) push(e *Entry, slot int) {
	*h = append(*h, e)
	e.at[slot] = int32(len(*h))
	h.up(len(*h)-1, slot)
}

func (h *heap) remove(e *Entry, slot int) {
	i, last := int(e.at[slot])-1, len(*h)-1
	e.at[slot] = 0
	moved := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	if i == last {
		return
	}
	(*h)[i] = moved
	moved.at[slot] = int32(i + 1)
	h.up(i, slot)
	h.down(int(moved.at[slot])-1, slot)
}

func (h heap) up(i, slot int) {
	e := h[i]
	for i > 0 {
		p := (i - 1) / 2
		if !before(e, h[p], slot) {
			break
		}
		h[i] = h[p]
		h[i].at[slot] = int32(i + 1)
		i = p
	}
	h[i] = e
	e.at[slot] = int32(i + 1)
}

func (h heap) down(i, slot int) {
	e := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && before(h[c+1], h[c], slot) {
			c++
		}
		if !before(h[c], e, slot) {
			break
		}
		h[i] = h[c]
		h[i].at[slot] = int32(i + 1)
		i = c
	}
	h[i] = e
	e.at[slot] = int32(i + 1)
}

// init restores the order after the keys of all entries changed, or the entries.
func (h heap) init(slot int) {
	for i, e := range h {
		e.at[slot] = int32(i + 1)
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i, slot)
	}
}

// queue holds waiting entries in the order of one policy: a list where that is the order of arrival, else a heap.
type queue struct {
	fifo   list
	ranked heap
}

func (q *queue) push(e *Entry, o Ordering) {
	if o == FCFS {
		q.fifo.push(e, turnSlot)
	} else {
		q.ranked.push(e, turnSlot)
	}
}

func (q *queue) head(o Ordering) *Entry {
	if o == FCFS {
		return q.fifo.head
	}
	return q.ranked.head()
}

func (q *queue) remove(e *Entry, o Ordering) {
	if o == FCFS {
		q.fifo.remove(e, turnSlot)
	} else {
		q.ranked.remove(e, turnSlot)
	}
}
