package async

import (
	"maps"
	"math"
	"time"
)

type queue struct {
	key      QueueKey
	cfg      QueueConfig
	pool     *pool
	gate     *node
	alarm    alarm
	held     list
	ready    [Lanes]list // RandomRobin uses the first only
	turn     [Lanes]uint64
	working  int // with a worker, at the pool's gate
	inFlight int
	removed  bool

	// The poll: budget, then allowance, then one pull after the other as there is room.
	awaits    SourceID // whose answer the budget waits for
	began     time.Duration
	budget    float64
	allowance int
	wanted    int // of the pull that is not answered yet; 0: none
	flow      int // last Flow; -1: none
	full      bool
	again     bool // woken while a poll was under way, which may have looked too early
	refused   bool
	probing   bool

	// What a tenant's exhausted quota sends back stays at the head of the broker's order. Every other poll looks further on, so that
	// other tenants' messages are met (AP-QUOTA-11).
	offset int
	sweep  int
	odd    bool
}

// flows tells whether messages come by themselves, as many as the budget allows.
func (q *queue) flows() bool { return q.cfg.Push && q.cfg.Batch > 0 && q.cfg.Interval > 0 }

// lookAhead is how far into a queue tenants are looked for, in messages.
const lookAhead = 1000

func (q *queue) depth() int {
	n := 0
	for i := range q.ready {
		n += q.ready[i].n
	}
	return n
}

func (m *Machine) addQueue(key QueueKey, cfg QueueConfig) {
	if m.byKey[key] != nil || key == 0 || m.cfg.Check(cfg) != nil {
		return
	}
	q := &queue{key: key, cfg: cfg, awaits: noSource}
	for _, p := range m.pools {
		if p.cfg.Name == cfg.Pool {
			q.pool = p
		}
	}
	q.gate = instance(cfg.Gate, q.pool)
	q.alarm.queue = q
	m.queues = append(m.queues, q)
	m.byKey[key] = q
	q.pool.queues = append(q.pool.queues, q)
	q.flow = -1
	switch {
	case m.down:
	case !cfg.Push:
		// The first poll comes after one whole interval, as the others do.
		m.alarms.set(&q.alarm, m.now+cfg.Interval, 0)
	case q.flows():
		m.tickQueue(q)
	}
}

func (m *Machine) removeQueue(key QueueKey) {
	q := m.byKey[key]
	if q == nil || q.removed {
		return
	}
	q.removed = true
	m.alarms.cancel(&q.alarm)
	m.giveBack(q)
	m.retire(q)
}

// retire forgets a removed queue once nothing of it is left.
func (m *Machine) retire(q *queue) {
	if !q.removed || q.wanted > 0 || q.held.n+q.depth()+q.working+q.inFlight > 0 || m.byKey[q.key] == nil {
		return
	}
	delete(m.byKey, q.key)
	m.queues = without(m.queues, q)
	q.pool.queues = without(q.pool.queues, q)
	m.emit(Out{Kind: Gone, Queue: q.key})
}

func without(qs []*queue, q *queue) []*queue {
	out := make([]*queue, 0, len(qs))
	for _, o := range qs {
		if o != q {
			out = append(out, o)
		}
	}
	return out
}

// tickQueue is called at every interval.
func (m *Machine) tickQueue(q *queue) {
	m.alarms.set(&q.alarm, m.now+q.cfg.Interval, 0)
	m.poll(q)
}

// poll begins with the gate's budget. A poll that is still busy with the broker or a source takes the place of this one.
func (m *Machine) poll(q *queue) {
	if m.down || q.removed || q.wanted > 0 || q.awaits != noSource {
		return
	}
	q.began = m.now
	m.decide(q)
}

// decide turns the budget into what this poll may take (AP-GATE-10).
func (m *Machine) decide(q *queue) {
	var b float64
	if b, q.awaits = m.budgetOf(q.gate, q.began); q.awaits != noSource || m.down || q.removed {
		return
	}
	q.budget = b
	n := int(math.Floor(float64(q.cfg.Batch)*b + epsilon))
	if q.cfg.Push {
		if n != q.flow {
			q.flow = n
			m.emit(Out{Kind: Flow, Queue: q.key, Count: n})
		}
		if n == 0 {
			m.emit(Out{Kind: Deny, Queue: q.key, Reason: GateClosed})
		}
		return
	}
	if q.allowance = n; n == 0 {
		if !q.probing {
			q.probing = true
			m.emit(Out{Kind: Probe, Queue: q.key})
		}
		return
	}
	q.odd = !q.odd
	q.offset, q.refused = 0, false
	if !q.odd {
		q.offset = q.sweep
	}
	m.topUp(q)
}

// backlog answers how many messages a closed gate keeps waiting: a poll counts as throttled only if there are any (AP-MET-18).
func (m *Machine) backlog(ev Event) {
	if q := m.byKey[ev.Queue]; q != nil && q.probing {
		q.probing = false
		if ev.Count > 0 && !q.removed {
			m.emit(Out{Kind: Deny, Queue: q.key, Reason: GateClosed})
		}
	}
}

// topUp pulls what the poll still allows and the pool has room for.
func (m *Machine) topUp(q *queue) {
	if m.down || q.removed || q.wanted > 0 || q.allowance == 0 {
		return
	}
	room := q.cfg.Ahead + q.pool.idle() - q.held.n - q.depth()
	if n := min(q.allowance, room); n > 0 {
		q.wanted = n
		m.emit(Out{Kind: Pull, Queue: q.key, Count: n, Offset: q.offset})
	}
}

// pulled takes the broker's answer to Pull, or what a pushing queue delivers.
func (m *Machine) pulled(ev Event) {
	q := m.byKey[ev.Queue]
	if q == nil || m.down || q.removed {
		for i := range ev.Messages {
			m.emit(Out{Kind: Release, Queue: ev.Queue, ID: ev.Messages[i].ID, Reason: Drained})
		}
		if q != nil {
			q.wanted = 0
			m.retire(q)
		}
		return
	}
	if !q.cfg.Push {
		q.full = len(ev.Messages) >= q.wanted && !ev.Failed
		q.wanted = 0
		if q.allowance -= len(ev.Messages); q.allowance < 0 || !q.full {
			q.allowance = 0
		}
		if !q.full {
			q.sweep = 0
		}
	}
	for i := range ev.Messages {
		m.admit(q, ev.Messages[i])
	}
	q.pool.dirty = true
	if q.again || q.cfg.Eager && q.full && !q.refused && q.allowance == 0 {
		q.again = false
		m.poll(q)
	}
}

// admit looks at a message in the documented order: can it be read, is there time, is it wanted, does the gate let it through.
func (m *Machine) admit(q *queue, in Message) {
	if m.live[in.ID] != nil {
		return
	}
	if in.Unreadable {
		m.emit(Out{Kind: DeadLetter, Queue: q.key, ID: in.ID})
		return
	}
	m.pulls++
	msg := &message{Message: in, queue: q, pulledAt: m.now, nth: m.pulls, awaits: noSource, labels: map[string]string{}}
	msg.alarm.message = msg
	maps.Copy(msg.labels, in.Envelope.Internal.Labels)
	// Only a gate classifies. What the producer says of itself would let anybody into the reserved lanes.
	delete(msg.labels, LabelClassification)
	maps.Copy(msg.labels, q.cfg.Labels)
	msg.deadline = m.unixToOffset(in.Envelope.Request.Deadline)
	m.live[in.ID] = msg
	m.move(msg, held)
	switch id := in.Envelope.Request.ID; {
	case in.Invalid != "":
		m.finish(msg, failure(id, CodeInvalidRequest, in.Invalid))
	case msg.deadline <= m.now:
		m.expire(msg, "deadline exceeded")
	case in.Cancelled:
		m.finish(msg, failure(id, CodeCancelled, "cancelled"))
	default:
		m.evaluate(msg)
	}
}

// passOver notes that a tenant's message went back to where it lay.
func (q *queue) passOver() {
	q.refused = true
	q.offset++
	q.sweep = max(q.sweep, q.offset)
	if q.offset >= lookAhead {
		q.sweep = 0
	}
}

// stop ends the poll: the gate is closed for everybody, and what comes next would only go to and fro.
func (q *queue) stop() {
	q.refused = true
	q.allowance = 0
}
