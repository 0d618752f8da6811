package async

import "time"

// Message is one delivery of a message by the broker.
type Message struct {
	ID       MessageID
	Envelope Envelope
	// Invalid says why the request can never be sent; its Envelope has no more than an id then. Unreadable: not even that.
	Invalid    string
	Unreadable bool
	// Cancelled: the producer had withdrawn it when it was pulled.
	Cancelled bool
}

// stage is where a message is.
type stage uint8

const (
	held   stage = iota // at the queue's gate: asking or waiting
	ready               // for a worker
	busy                // with a worker, at the pool's gate: asking or parked
	flying              // with a worker, sent
	gone
)

type message struct {
	Message
	queue      *queue
	stage      stage
	alarm      alarm
	list       *list
	prev, next *message

	pulledAt time.Duration
	nth      uint64 // in the order of pulling
	deadline time.Duration
	labels   map[string]string // the queue's over its own
	lane     int
	counted  bool // as a new request

	// The evaluation of the gate in whose stage it is.
	asked   int // questions not answered yet; a message is remembered until they are
	awaits  SourceID
	began   time.Duration
	memo    []quotaMemo
	taken   int           // holds from here on belong to this evaluation
	holds   []hold        // quotas and slots that it has
	recheck time.Duration // when a waiting message is evaluated again
	pause   time.Duration
	waiting bool
	until   time.Duration // flying: end of the attempt; busy: end of the parking
}

// noSource is awaits of a message that waits for no source.
const noSource SourceID = -1

type list struct {
	head, tail *message
	n          int
}

func (l *list) push(msg *message) {
	msg.list, msg.prev, msg.next = l, l.tail, nil
	if l.tail == nil {
		l.head = msg
	} else {
		l.tail.next = msg
	}
	l.tail = msg
	l.n++
}

// insert puts a message behind those that were pulled before it: answers of gates may come in another order.
func (l *list) insert(msg *message) {
	after := l.tail
	for after != nil && after.nth > msg.nth {
		after = after.prev
	}
	if after == l.tail {
		l.push(msg)
		return
	}
	msg.list, msg.prev = l, after
	if after == nil {
		msg.next, l.head = l.head, msg
	} else {
		msg.next, after.next = after.next, msg
	}
	msg.next.prev = msg
	l.n++
}

func (l *list) remove(msg *message) {
	if msg.prev == nil {
		l.head = msg.next
	} else {
		msg.prev.next = msg.next
	}
	if msg.next == nil {
		l.tail = msg.prev
	} else {
		msg.next.prev = msg.prev
	}
	msg.list, msg.prev, msg.next = nil, nil, nil
	l.n--
}

// move puts a message into another stage.
func (m *Machine) move(msg *message, to stage) {
	if msg.list != nil {
		msg.list.remove(msg)
	}
	q := msg.queue
	switch msg.stage {
	case busy:
		q.working--
	case flying:
		q.inFlight--
	}
	msg.stage = to
	switch to {
	case held:
		q.held.push(msg)
	case ready:
		l := 0
		if m.cfg.Merge.Kind == TierPriority {
			l = msg.lane
		}
		q.ready[l].insert(msg)
	case busy:
		q.pool.busy.push(msg)
		q.working++
	case flying:
		q.pool.flying.push(msg)
		q.inFlight++
	}
	q.pool.dirty = true
}

// count makes a message a new request: when it is first sent, or when it ends before (AP-MET-02). Counting where a worker takes it
// would count a message anew each time a pool's gate gives it back.
func (m *Machine) count(msg *message) {
	if !msg.counted && msg.Envelope.Internal.RetryCount == 0 {
		m.emit(Out{Kind: First, Queue: msg.queue.key, ID: msg.ID})
	}
	msg.counted = true
}

// finish publishes the message's result.
func (m *Machine) finish(msg *message, r Result) {
	m.count(msg)
	m.emit(Out{Kind: Finish, Queue: msg.queue.key, ID: msg.ID, Result: r})
	m.leave(msg)
}

// expire ends a message whose time is over.
func (m *Machine) expire(msg *message, what string) {
	m.finish(msg, failure(msg.Envelope.Request.ID, CodeDeadlineExceeded, what))
}

func (m *Machine) release(msg *message, why Reason) {
	m.emit(Out{Kind: Release, Queue: msg.queue.key, ID: msg.ID, Reason: why})
	m.leave(msg)
}

// leave forgets a message, after what it has taken was given back in reverse order. If an answer about it is still to come, it is
// remembered until then, so that a quota that was granted too late is not lost.
func (m *Machine) leave(msg *message) {
	m.giveUp(msg, 0, false)
	m.move(msg, gone)
	m.alarms.cancel(&msg.alarm)
	if msg.asked == 0 {
		delete(m.live, msg.ID)
	}
	m.retire(msg.queue)
}

// cancel ends a message that its producer withdrew, wherever it is (AP-RES-05).
func (m *Machine) cancel(id MessageID) {
	msg := m.live[id]
	if msg == nil || msg.stage == gone {
		return
	}
	if msg.stage == flying {
		m.emit(Out{Kind: Abort, Queue: msg.queue.key, ID: id})
	}
	m.finish(msg, failure(msg.Envelope.Request.ID, CodeCancelled, "cancelled"))
}

// arm sets the next instant at which the message itself does something.
func (m *Machine) arm(msg *message) {
	at := msg.deadline
	if (msg.stage == busy || msg.stage == flying) && msg.until > 0 {
		at = min(at, msg.until)
	}
	if msg.waiting {
		at = min(at, msg.recheck)
	}
	m.alarms.set(&msg.alarm, at, uint64(msg.ID))
}

// tickMessage is called when an armed instant has come.
func (m *Machine) tickMessage(msg *message) {
	if m.now >= msg.deadline {
		if msg.stage == flying {
			m.emit(Out{Kind: Abort, Queue: msg.queue.key, ID: msg.ID})
		}
		m.expire(msg, "deadline exceeded")
		return
	}
	late := msg.until > 0 && m.now >= msg.until
	switch {
	case msg.stage == flying && late:
		m.emit(Out{Kind: Abort, Queue: msg.queue.key, ID: msg.ID})
		m.expire(msg, "request timeout exceeded")
	case msg.stage == busy && late:
		m.release(msg, WaitedTooLong)
	case msg.waiting && m.now >= msg.recheck:
		m.evaluate(msg)
	default:
		m.arm(msg)
	}
}
