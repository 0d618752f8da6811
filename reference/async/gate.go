package async

import "time"

// GateKind is the closed set of gates.
type GateKind uint8

// The gates (spec/async-processor.md §4). The first six report a budget in [0, 1] and refuse when it is 0.
const (
	Constant              GateKind = iota // open
	RedisBudget                           // the number under a key
	PrometheusSaturation                  // closed from Threshold on
	PrometheusBudget                      // the first source that answers, less Baseline
	PrometheusQuery                       // the source's value
	EndpointScrape                        // 1 - value/capacity - Baseline
	LocalMaxConcurrency                   // at most Limit messages past this gate
	RedisQuota                            // per value of an attribute
	TierPriorityAdmission                 // what the inner gate's refusal means depends on tier and classification
	Composite                             // all inner gates, or none
	WaitOnRefuse                          // the inner gate, its refusals turned into waiting
)

// Gate is one gate with its parameters; nil is the open gate. The same value may be used by several owners, each of which has its own
// state.
type Gate struct {
	Kind GateKind
	// Sources are asked in this order until one has a value (PrometheusBudget); EndpointScrape has the value's and, if the capacity
	// follows the pods, the pod count's; the other budget gates have one.
	Sources        []SourceID
	Threshold      float64 // PrometheusSaturation
	Baseline       float64 // PrometheusBudget, EndpointScrape
	Fallback       float64 // without a value; a saturation for PrometheusSaturation, a budget for the others (AP-GATE-14, AP-GATE-22)
	MaxCountPerPod float64 // EndpointScrape; 0: the value is a saturation
	Inference      string  // the inference pool asked about; only shown
	Limit          int     // LocalMaxConcurrency
	Blocking       bool    // LocalMaxConcurrency: what is over the limit waits instead of being refused (AP-GATE-34)
	Quota          *Quota  // RedisQuota
	TierLabel      string  // TierPriorityAdmission
	Inner          []*Gate // TierPriorityAdmission, WaitOnRefuse: one; Composite: any number
}

// Quota is what one attribute value may have.
type Quota struct {
	Address     string // of the Redis server
	Prefix      string
	Attribute   string // metadata key
	Concurrency bool   // Limit messages at once; otherwise Limit messages a Window
	Limit       int64
	Window      time.Duration
	Classify    bool // what is over the quota is tagged instead of being refused (AP-QUOTA-07)
}

// Key is where the quota of one attribute value is kept (AP-QUOTA-05).
func (q *Quota) Key(value string) string { return q.Prefix + q.Attribute + ":" + value }

func (g *Gate) check(owner string, sources int, check checker) {
	if g == nil {
		return
	}
	want := map[GateKind][2]int{RedisBudget: {1, 1}, PrometheusSaturation: {1, 8}, PrometheusBudget: {1, 8}, PrometheusQuery: {1, 1}, EndpointScrape: {1, 2}}[g.Kind]
	check(len(g.Sources) >= want[0] && len(g.Sources) <= want[1], "%s: gate %d has %d sources", owner, g.Kind, len(g.Sources))
	for _, s := range g.Sources {
		check(s >= 0 && int(s) < sources, "%s: unknown source %d", owner, s)
	}
	for _, v := range []float64{g.Threshold, g.Baseline, g.Fallback, g.MaxCountPerPod} {
		check(finite(v) && v >= 0, "%s: gate %d: parameters must be finite and not negative, got %v", owner, g.Kind, v)
	}
	inner := 0
	switch g.Kind {
	case Constant, RedisBudget, PrometheusSaturation, PrometheusBudget, PrometheusQuery, EndpointScrape:
	case LocalMaxConcurrency:
		check(g.Limit > 0, "%s: Limit must be positive, got %d", owner, g.Limit)
	case RedisQuota:
		check(g.Quota != nil && g.Quota.Limit > 0 && g.Quota.Window > 0 && g.Quota.Attribute != "", "%s: incomplete quota", owner)
	case TierPriorityAdmission, WaitOnRefuse:
		inner = 1
		check(len(g.Inner) == 1, "%s: gate %d wraps one gate, got %d", owner, g.Kind, len(g.Inner))
	case Composite:
		inner = len(g.Inner)
	default:
		check(false, "%s: unknown gate %d", owner, g.Kind)
	}
	check(len(g.Inner) == inner, "%s: gate %d wraps nothing", owner, g.Kind)
	for _, i := range g.Inner {
		i.check(owner, sources, check)
	}
}

// node is a gate with the state that one owner has of it.
type node struct {
	*Gate
	pool  *pool // to be looked at when a slot becomes free
	inner []*node
	used  int // LocalMaxConcurrency
	state GateState
	known bool // state was evaluated
	local bool // there is a LocalMaxConcurrency in it
}

// instance makes the state of a gate; nil for the open gate.
func instance(g *Gate, p *pool) *node {
	if g == nil {
		return nil
	}
	n := &node{Gate: g, pool: p, local: g.Kind == LocalMaxConcurrency}
	for _, i := range g.Inner {
		in := instance(i, p)
		n.inner = append(n.inner, in)
		n.local = n.local || in != nil && in.local
	}
	return n
}

func (n *node) states(dst []GateState, q QueueKey, pool int) []GateState {
	if n == nil {
		return dst
	}
	if n.known {
		s := n.state
		s.Queue, s.Pool, s.Inference = q, pool, n.Inference
		dst = append(dst, s)
	}
	for _, i := range n.inner {
		dst = i.states(dst, q, pool)
	}
	return dst
}

// verdict is what a gate says about a message.
type verdict struct {
	kind   verdictKind
	reason Reason
	// tenant: it is about this message's tenant, others of the same queue may pass.
	tenant bool
	drop   Result // drops
	source SourceID
}

type verdictKind uint8

const (
	continues verdictKind = iota
	waits
	refuses
	drops
	fails
	asks // a question is open
)

// quotaMemo is what is known of one quota in the present evaluation.
type quotaMemo struct {
	node   *node
	hold   HoldID
	open   bool
	answer QuotaAnswer
}

// hold is something taken that has to be given back.
type hold struct {
	slot  *node // LocalMaxConcurrency
	id    HoldID
	quota *Quota
	value string
}

// eval asks the gate about a message. It may be called again when a question was answered: what it has learnt and taken before counts.
func (m *Machine) eval(n *node, msg *message) verdict {
	if n == nil {
		return verdict{}
	}
	switch n.Kind {
	case LocalMaxConcurrency:
		return m.evalSlot(n, msg)
	case RedisQuota:
		return m.evalQuota(n, msg)
	case Composite:
		for _, i := range n.inner {
			if v := m.eval(i, msg); v.kind != continues {
				return v
			}
		}
		return verdict{}
	case WaitOnRefuse:
		v := m.eval(n.inner[0], msg)
		if v.kind == refuses {
			v.kind = waits
		}
		return v
	case TierPriorityAdmission:
		return m.evalTier(n, msg)
	}
	b, open := m.budgetOf(n, msg.began)
	switch {
	case open != noSource:
		return verdict{kind: asks, source: open}
	case b <= 0:
		return verdict{kind: refuses, reason: GateClosed}
	}
	return verdict{}
}

func (m *Machine) evalSlot(n *node, msg *message) verdict {
	for _, h := range msg.holds[msg.taken:] {
		if h.slot == n {
			return verdict{}
		}
	}
	switch {
	case n.used < n.Limit:
		n.used++
		msg.holds = append(msg.holds, hold{slot: n})
		return verdict{}
	case n.Blocking:
		return verdict{kind: waits, reason: GateClosed}
	}
	return verdict{kind: refuses, reason: GateClosed}
}

func (m *Machine) evalQuota(n *node, msg *message) verdict {
	value := msg.Envelope.Request.Metadata[n.Quota.Attribute]
	if value == "" { // AP-QUOTA-08
		return verdict{}
	}
	for i := range msg.memo {
		if k := &msg.memo[i]; k.node == n {
			return n.quotaVerdict(k, msg)
		}
	}
	m.lastHold++
	msg.memo = append(msg.memo, quotaMemo{node: n, hold: m.lastHold, open: true})
	msg.asked++
	m.questions++
	m.emit(Out{Kind: Acquire, Queue: msg.queue.key, ID: msg.ID, Hold: m.lastHold, Quota: n.Quota, Value: value})
	return verdict{kind: asks, source: noSource}
}

func (n *node) quotaVerdict(k *quotaMemo, msg *message) verdict {
	switch {
	case k.open:
		return verdict{kind: asks, source: noSource}
	case k.answer == QuotaFailed:
		return verdict{kind: fails, reason: GateFailed}
	case k.answer == Within:
		if n.Quota.Classify {
			msg.labels[LabelClassification] = Reserved
		}
		return verdict{}
	}
	msg.labels[LabelClassification] = Overflow
	if n.Quota.Classify {
		return verdict{}
	}
	return verdict{kind: refuses, reason: QuotaExhausted, tenant: true}
}

// evalTier reads the inner gate's refusal as "saturated" (AP-TIER-07 to AP-TIER-11).
func (m *Machine) evalTier(n *node, msg *message) verdict {
	v := m.eval(n.inner[0], msg)
	switch {
	case v.kind == asks || v.kind == fails:
		return v
	case v.kind != refuses:
		return verdict{}
	case msg.labels[LabelClassification] == Reserved:
		return verdict{kind: waits, reason: v.reason}
	case msg.labels[LabelClassification] == Overflow && msg.labels[n.TierLabel] == TierInteractive:
		r := failure(msg.Envelope.Request.ID, CodeGateDropped, "dropped by tier-priority-admission: the pool is saturated")
		r.Payload = tierDropPayload
		return verdict{kind: drops, reason: Dropped, drop: r}
	}
	return v
}

// giveUp gives back what a message has taken, last first, down to holds[:from]. refund undoes a take that came to nothing; otherwise
// tokens of a rate limit are spent for good (AP-GATE-36).
func (m *Machine) giveUp(msg *message, from int, refund bool) {
	for i := len(msg.holds) - 1; i >= from; i-- {
		switch h := &msg.holds[i]; {
		case h.slot != nil:
			h.slot.used--
			if !refund { // else two that wait for each other's slot would wake each other for ever; they look again by themselves
				h.slot.pool.woken, h.slot.pool.dirty = true, true
			}
		case h.quota.Concurrency || refund:
			m.emit(Out{Kind: Free, Queue: msg.queue.key, ID: msg.ID, Hold: h.id, Quota: h.quota, Value: h.value, Refund: refund})
		}
	}
	msg.holds = msg.holds[:from]
}

// acquired takes a quota's answer.
func (m *Machine) acquired(ev Event) {
	msg := m.live[ev.ID]
	if msg == nil {
		return
	}
	for i := range msg.memo {
		k := &msg.memo[i]
		if k.hold != ev.Hold || !k.open {
			continue
		}
		k.open, k.answer = false, ev.Quota
		msg.asked--
		m.questions--
		h := hold{id: k.hold, quota: k.node.Quota, value: msg.Envelope.Request.Metadata[k.node.Quota.Attribute]}
		if ev.Quota == Within {
			msg.holds = append(msg.holds, h)
		}
		if msg.stage != gone {
			m.resume(msg)
			return
		}
		m.giveUp(msg, 0, true)
		if msg.asked == 0 {
			delete(m.live, msg.ID)
		}
		return
	}
}
