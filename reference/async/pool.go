package async

import "time"

type pool struct {
	cfg    PoolConfig
	gate   *node
	queues []*queue
	busy   list // with a worker, at the pool's gate
	flying list // with a worker, sent
	turns  uint64
	dirty  bool // something has changed on which the next dispatch may depend
	woken  bool // a slot of a local gate became free
}

func (p *pool) idle() int { return p.cfg.Workers - p.busy.n - p.flying.n }

func (p *pool) index(m *Machine) int {
	for i := range m.pools {
		if m.pools[i] == p {
			return i
		}
	}
	return -1
}

// The pauses between two looks at a gate that says wait. They grow, because a look may cost a question to the outside; a slot that
// becomes free inside the process is noticed at once.
const (
	pauseFirst = 50 * time.Millisecond
	pauseLast  = 500 * time.Millisecond
)

// settle lets workers take what is ready and queues pull what there is room for, until nothing moves.
func (m *Machine) settle() {
	for again := true; again; {
		again = false
		for _, p := range m.pools {
			if p.dirty {
				p.dirty, again = false, true
				m.settlePool(p)
			}
		}
	}
}

func (m *Machine) settlePool(p *pool) {
	if p.woken {
		p.woken = false
		if p.gate != nil && p.gate.local {
			m.look(&p.busy)
		}
		for _, q := range p.queues {
			if q.gate != nil && q.gate.local {
				m.look(&q.held)
			}
		}
	}
	for !m.down && p.idle() > 0 {
		q, lane := m.next(p)
		if q == nil {
			break
		}
		m.take(q.ready[lane].head)
	}
	for _, q := range p.queues {
		m.topUp(q)
	}
}

// look evaluates again what waits, in the order in which it began to.
func (m *Machine) look(l *list) {
	for msg := l.head; msg != nil; {
		next := msg.next
		if msg.waiting {
			m.evaluate(msg)
		}
		msg = next
	}
}

// take gives a message to a free worker.
func (m *Machine) take(msg *message) {
	m.emit(Out{Kind: Take, Queue: msg.queue.key, ID: msg.ID, Waited: m.now - msg.pulledAt})
	msg.pause = 0
	if m.cfg.GateWait > 0 {
		msg.until = m.now + m.cfg.GateWait
	}
	m.move(msg, busy)
	m.evaluate(msg)
}

// evaluate asks the gate of the message's stage anew; resume goes on after an answer.
func (m *Machine) evaluate(msg *message) {
	msg.began, msg.memo, msg.taken = m.now, nil, len(msg.holds)
	m.resume(msg)
}

func (m *Machine) resume(msg *message) {
	gate, atPool := msg.queue.gate, msg.stage == busy
	if atPool {
		gate = msg.queue.pool.gate
	}
	first := msg.pause == 0
	msg.waiting, msg.awaits = false, noSource
	v := m.eval(gate, msg)
	if v.kind == asks {
		msg.awaits = v.source
		m.arm(msg)
		return
	}
	if v.kind != continues {
		m.giveUp(msg, msg.taken, true)
		if v.kind != waits || first {
			m.emit(Out{Kind: Deny, Queue: msg.queue.key, Pool: msg.queue.pool.index(m), AtPool: atPool, ID: msg.ID, Reason: v.reason})
		}
	}
	switch v.kind {
	case continues:
		m.pass(msg)
	case waits:
		msg.waiting = true
		msg.pause = min(max(2*msg.pause, pauseFirst), pauseLast)
		msg.recheck = m.now + msg.pause
		m.arm(msg)
	case refuses:
		m.refuse(msg, v)
	case drops:
		m.finish(msg, v.drop)
	case fails:
		if atPool {
			m.finish(msg, failure(msg.Envelope.Request.ID, CodeGateError, "pool gate: its quota could not be asked"))
		} else {
			m.refuse(msg, v)
		}
	}
}

// pass leads a message past the gate of its stage.
func (m *Machine) pass(msg *message) {
	msg.taken, msg.memo, msg.pause = len(msg.holds), nil, 0
	if msg.stage == busy {
		m.send(msg)
		return
	}
	msg.lane = lane(msg.labels, m.cfg.Merge.TierLabel)
	m.move(msg, ready)
	m.arm(msg)
}

// refuse gives a message back at once, which costs it no attempt (AP-GATE-03, AP-RETRY-12).
func (m *Machine) refuse(msg *message, v verdict) {
	if v.tenant {
		msg.queue.passOver()
	} else {
		msg.queue.stop()
	}
	m.release(msg, v.reason)
}

func (m *Machine) send(msg *message) {
	to, err := m.outgoing(msg)
	if err != nil {
		m.finish(msg, failure(msg.Envelope.Request.ID, CodeInvalidRequest, err.Error()))
		return
	}
	m.count(msg)
	msg.until = 0
	if m.cfg.RequestTimeout > 0 {
		msg.until = m.now + m.cfg.RequestTimeout
	}
	m.move(msg, flying)
	m.emit(Out{Kind: Send, Queue: msg.queue.key, ID: msg.ID, Request: to})
	m.arm(msg)
}
