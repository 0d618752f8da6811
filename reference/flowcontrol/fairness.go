package flowcontrol

import "time"

// flow is one tenant inside one band: the lease on its state and, under round robin, its own queue.
type flow struct {
	id         string
	band       *band
	queue      queue         // not used under GlobalStrict
	queued     int           // entries in queue
	lease      int           // entries queued or in flight; the flow is idle at 0
	idleSince  time.Duration // when lease became 0
	prev, next *flow         // in the band's rotation while queued > 0, in its idle list while lease == 0

	service float64 // under ProgramAware: attained so far, in units of epoch
	epoch   int64
	place   int // position among the contenders plus one; 0: none
}

// flows is an intrusive list of flows.
type flows struct{ head, tail *flow }

func (l *flows) push(f *flow) {
	f.prev, f.next = l.tail, nil
	if l.tail == nil {
		l.head = f
	} else {
		l.tail.next = f
	}
	l.tail = f
}

func (l *flows) remove(f *flow) {
	if f.prev == nil {
		l.head = f.next
	} else {
		f.prev.next = f.next
	}
	if f.next == nil {
		l.tail = f.prev
	} else {
		f.next.prev = f.prev
	}
	f.prev, f.next = nil, nil
}

// add puts an entry where the band's fairness policy will look for it.
//
// Global strict takes the best head over all flows by the band's ordering. Since that order is total over the whole band, the best
// head is the best entry of the band: one queue holds all flows and no flow is ever searched (FC-FAIR-06, FC-FAIR-09).
//
// Round robin keeps the flows that have queued work in a list, the next turn at its head. A flow that gets its first entry joins
// at the end of the round, without credit or penalty (FC-FAIR-04); a turn costs the same for any number of flows. The round goes on
// where it was also after an idle time; it does not restart at the smallest id (FC-FAIR-12 is informative).
//
// Program aware keeps the flows that have queued work in a table (attained).
func (b *band) add(e *Entry) {
	if b.cfg.Fairness == GlobalStrict {
		b.queue.push(e, b.cfg.Ordering)
		return
	}
	e.flow.queue.push(e, b.cfg.Ordering)
	e.flow.queued++
	switch first := e.flow.queued == 1; {
	case b.cfg.Fairness == ProgramAware && first:
		b.enter(e.flow, b.cfg.Ordering)
	case b.cfg.Fairness == ProgramAware:
		b.update(e.flow, b.cfg.Ordering)
	case first:
		b.rotation.push(e.flow)
	}
}

// head is the entry whose turn it is; the band has queued work.
func (b *band) head() *Entry {
	switch b.cfg.Fairness {
	case GlobalStrict:
		return b.queue.head(b.cfg.Ordering)
	case ProgramAware:
		return b.pick().queue.head(b.cfg.Ordering)
	default:
		return b.rotation.head.queue.head(b.cfg.Ordering)
	}
}

// drop takes an entry out. If it left by dispatch, its flow has had its turn and goes to the end of the round; a flow without
// further work leaves the rotation either way (FC-FAIR-01).
func (b *band) drop(e *Entry, turn bool) {
	if b.cfg.Fairness == GlobalStrict {
		b.queue.remove(e, b.cfg.Ordering)
		return
	}
	f := e.flow
	f.queue.remove(e, b.cfg.Ordering)
	f.queued--
	switch {
	case b.cfg.Fairness == ProgramAware && f.queued == 0:
		b.leave(f)
	case b.cfg.Fairness == ProgramAware:
		b.update(f, b.cfg.Ordering)
	case f.queued == 0:
		b.rotation.remove(f)
	case turn:
		b.rotation.remove(f)
		b.rotation.push(f)
	}
}
