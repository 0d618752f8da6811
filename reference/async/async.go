// Package async is the Async Processor's decisions as one machine: when to pull from which queue, whether a gate lets a message
// through, which message a free worker takes, what an answer means, when to try again, and how each message ends.
//
//	        Pull                 queue gate              merge policy             pool gate              Send
//	broker ------> admission ------------------> ready ----------------> worker ------------> in flight ------> answer
//	  ^               |  refuse, error: Release    |                       | wait: parked        |                 |
//	  |               |  drop, expired,            | drain: Release        | refuse: Release     | deadline,       | 2xx, 4xx: Finish
//	  |               v  cancelled: Finish         v                       v drop: Finish        v cancel: Finish  v 429, 5xx: Retry
//	  +---------------------------------------- Release, Retry ----------------------------------------------------+
//
// Every message that is pulled leaves the machine exactly once: Finish (its one final result), Retry, Release, or DeadLetter. The
// package is a machine without clock and without I/O: what only the outside knows (a gate's source, a quota, the broker's backlog)
// is asked for by an Out and answered by an Event.
package async

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Machine is the state of one processor. One owner calls it; nothing in it is safe for concurrent use.
type Machine struct {
	cfg       Config
	rng       *rand.Rand
	now       time.Duration
	pools     []*pool
	queues    []*queue // in the order in which they were added
	byKey     map[QueueKey]*queue
	live      map[MessageID]*message
	readings  []reading
	lastHold  HoldID
	questions int // Acquire without an answer
	pulls     uint64
	alarms    alarms
	down      bool
	out       []Out
}

// New makes a machine without queues; AddQueue brings them.
func New(cfg Config) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Machine{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x61_73_79_6e_63)), byKey: map[QueueKey]*queue{}, live: map[MessageID]*message{},
		readings: make([]reading, len(cfg.Sources)),
	}
	for _, p := range cfg.Pools {
		own := &pool{cfg: p}
		own.gate = instance(p.Gate, own)
		m.pools = append(m.pools, own)
	}
	return m, nil
}

// Step tells the machine that it is now (an offset since the epoch that never goes back) and what happened. Decisions are appended
// to out. An extra Tick is harmless; an event about an unknown message or queue is ignored.
func (m *Machine) Step(now time.Duration, ev Event, out []Out) []Out {
	m.now = max(now, m.now)
	m.out = out
	m.ring()
	m.settle()
	switch ev.Kind {
	case Tick:
	case AddSource:
		m.cfg.Sources = append(slices.Clone(m.cfg.Sources), Source{TTL: max(ev.TTL, 0)})
		m.readings = append(m.readings, reading{})
	case AddQueue:
		m.addQueue(ev.Queue, ev.QueueConfig)
	case RemoveQueue:
		m.removeQueue(ev.Queue)
	case Wake:
		if q := m.byKey[ev.Queue]; q != nil && !q.cfg.Push {
			q.again = q.wanted > 0 || q.awaits != noSource
			m.poll(q)
		}
	case Pulled:
		m.pulled(ev)
	case Backlog:
		m.backlog(ev)
	case Reading:
		m.read(ev)
	case Acquired:
		m.acquired(ev)
	case Response:
		m.response(ev)
	case Cancel:
		m.cancel(ev.ID)
	case Drain:
		m.drain()
	case Abandon:
		m.abandon()
	}
	m.settle()
	out, m.out = m.out, nil
	return out
}

// Deadline is the next instant at which the machine wants a Tick; false if none.
func (m *Machine) Deadline() (time.Duration, bool) {
	if len(m.alarms) == 0 {
		return 0, false
	}
	return m.alarms[0].at, true
}

// ring does what the passing of time alone demands, before the event: a message is never sent in the instant in which it expires.
func (m *Machine) ring() {
	for len(m.alarms) > 0 && m.alarms[0].at <= m.now {
		a := m.alarms.pop()
		if a.queue != nil {
			m.tickQueue(a.queue)
		} else {
			m.tickMessage(a.message)
		}
	}
}

func (m *Machine) emit(o Out) { m.out = append(m.out, o) }

// drain stops pulling and gives back everything that is not in flight; what is in flight goes on (AP-DRAIN-01, AP-DRAIN-03).
func (m *Machine) drain() {
	m.down = true
	for _, q := range m.queues {
		m.alarms.cancel(&q.alarm)
		m.giveBack(q)
	}
}

// abandon ends the drain: what is still in flight is stopped and given back, uncounted as a retry (AP-DRAIN-02).
func (m *Machine) abandon() {
	m.drain()
	for _, p := range m.pools {
		for msg := p.flying.head; msg != nil; {
			next := msg.next
			m.emit(Out{Kind: Abort, Queue: msg.queue.key, ID: msg.ID})
			m.release(msg, Drained)
			msg = next
		}
	}
}

// giveBack releases the messages of a queue that are not in flight.
func (m *Machine) giveBack(q *queue) {
	for lane := range q.ready {
		m.releaseAll(&q.ready[lane])
	}
	m.releaseAll(&q.held)
	for msg := q.pool.busy.head; msg != nil; {
		next := msg.next
		if msg.queue == q {
			m.release(msg, Drained)
		}
		msg = next
	}
}

func (m *Machine) releaseAll(l *list) {
	for l.head != nil {
		m.release(l.head, Drained)
	}
}

// Live is the number of messages that were pulled and have not left the machine.
func (m *Machine) Live() int {
	n := 0
	for _, q := range m.queues {
		n += q.held.n + q.depth() + q.inFlight
	}
	for _, p := range m.pools {
		n += p.busy.n
	}
	return n
}

// Outstanding is the number of questions about messages that were not answered yet, also about messages that have left.
func (m *Machine) Outstanding() int { return m.questions }

// QueueState is what can be seen of a queue from outside.
type QueueState struct {
	Key      QueueKey
	Depth    int     // pulled and waiting: at the queue's gate, for a worker, or parked at the pool's gate
	InFlight int     // sent and not answered
	Budget   float64 // of the last poll, in [0, 1]
	Removed  bool    // no longer pulled; it stays until its last message has left
}

// Queues appends the state of every queue to dst, in the order in which they were added.
func (m *Machine) Queues(dst []QueueState) []QueueState {
	for _, q := range m.queues {
		n := q.held.n + q.depth() + q.working
		dst = append(dst, QueueState{Key: q.key, Depth: n, InFlight: q.inFlight, Budget: q.budget, Removed: q.removed})
	}
	return dst
}

// GateState is the last evaluation of a metric gate (AP-MET-19, AP-MET-20).
type GateState struct {
	Queue     QueueKey // 0 for the gate of a pool
	Pool      int      // index in Config.Pools
	Inference string   // the inference pool that the gate names, "" if none
	Value     float64  // what was compared
	Threshold float64  // closed when Value <= Threshold
	Available bool     // false: the fallback was used
}

// Gates appends the state of every metric gate that was evaluated to dst: the pools' gates first.
func (m *Machine) Gates(dst []GateState) []GateState {
	for i, p := range m.pools {
		dst = p.gate.states(dst, 0, i)
	}
	for _, q := range m.queues {
		if !q.removed {
			dst = q.gate.states(dst, q.key, q.pool.index(m))
		}
	}
	return dst
}

// unixToOffset converts Unix seconds to an offset since the epoch. What does not fit into an offset is as far as one goes: the
// guide's own example has a deadline in the year 743,795 (AP-DL-05).
func (m *Machine) unixToOffset(seconds int64) time.Duration {
	const second = int64(time.Second)
	epoch := m.cfg.EpochUnix
	if seconds > (math.MaxInt64-second)/second {
		return math.MaxInt64
	}
	if seconds < math.MinInt64/second {
		return math.MinInt64
	}
	at := seconds * second
	if epoch > 0 && at < math.MinInt64+epoch {
		return math.MinInt64
	}
	if epoch < 0 && at > math.MaxInt64+epoch {
		return math.MaxInt64
	}
	return time.Duration(at - epoch)
}

var errConfig = errors.New("async configuration")
