package async

import "time"

// alarm is the next instant at which something happens to a queue or a message by itself. Each has one, so that the number of
// alarms is that of live things and none is ever stale.
type alarm struct {
	at      time.Duration
	seq     uint64
	pos     int // in the heap, from 1; 0: not armed
	queue   *queue
	message *message
}

// alarms is a heap by (at, seq): ties go in the order of arming.
type alarms []*alarm

func (h alarms) less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}

func (h alarms) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i+1, j+1
}

func (h alarms) up(i int) {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h alarms) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h.less(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

// set arms a for at, or arms it anew.
func (h *alarms) set(a *alarm, at time.Duration, seq uint64) {
	a.at, a.seq = at, seq
	if a.pos == 0 {
		*h = append(*h, a)
		a.pos = len(*h)
	}
	h.up(a.pos - 1)
	h.down(a.pos - 1)
}

func (h *alarms) cancel(a *alarm) {
	if a.pos == 0 {
		return
	}
	i, last := a.pos-1, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	a.pos = 0
	if i < last {
		h.up(i)
		h.down(i)
	}
}

func (h *alarms) pop() *alarm {
	a := (*h)[0]
	h.cancel(a)
	return a
}
