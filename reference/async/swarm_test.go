package async

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is everything around a machine: a broker that holds each submitted message in exactly one place, quotas, sources, upstream.
// It answers the machine's questions in any order and judges every decision.
type world struct {
	t     *rapid.T
	m     *Machine
	cfg   Config
	now   time.Duration
	next  MessageID
	queue map[QueueKey]*worldQueue
	// What the machine waits for.
	pulls, probes []Out
	reads, asks   []Out
	flying        map[MessageID]Out
	// Deliveries: which request one is of, and the state of each request.
	of       map[MessageID]string
	results  map[string]int
	held     map[HoldID]string // granted holds, by quota key
	granted  map[string]int    // concurrency quota key: held now
	drained  bool
	deadline map[string]time.Duration
	sends    int
}

type worldQueue struct {
	cfg     QueueConfig
	pending []Message
	retries map[string]struct {
		m   Message
		due time.Duration
	}
	removed bool
}

func pick(t *rapid.T, name string, n int) int { return rapid.IntRange(0, n-1).Draw(t, name) }

func drawGate(t *rapid.T, depth int) *Gate {
	kinds := 9
	if depth == 0 {
		kinds = 6
	}
	switch pick(t, "gate", kinds) {
	case 0:
		return nil
	case 1:
		return &Gate{Kind: RedisBudget, Sources: []SourceID{0}}
	case 2:
		return &Gate{Kind: PrometheusBudget, Sources: []SourceID{1, 2}, Baseline: 0.1, Fallback: 0.5}
	case 3:
		return &Gate{Kind: LocalMaxConcurrency, Limit: 1 + pick(t, "limit", 3), Blocking: rapid.Bool().Draw(t, "blocking")}
	case 4, 5:
		return &Gate{Kind: RedisQuota, Quota: &Quota{Prefix: fmt.Sprint("q", pick(t, "prefix", 2), ":"), Attribute: "userid", Concurrency: true,
			Limit: int64(1 + pick(t, "quota", 3)), Window: time.Minute, Classify: rapid.Bool().Draw(t, "classify")}}
	case 6:
		g := &Gate{Kind: Composite}
		for range 1 + pick(t, "parts", 3) {
			g.Inner = append(g.Inner, drawGate(t, depth-1))
		}
		return g
	case 7:
		return &Gate{Kind: WaitOnRefuse, Inner: []*Gate{drawGate(t, depth-1)}}
	default:
		return &Gate{Kind: TierPriorityAdmission, TierLabel: "tier", Inner: []*Gate{drawGate(t, depth-1)}}
	}
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, queue: map[QueueKey]*worldQueue{}, flying: map[MessageID]Out{}, of: map[MessageID]string{}, results: map[string]int{},
		held: map[HoldID]string{}, granted: map[string]int{}, deadline: map[string]time.Duration{}}
	w.cfg = Config{Seed: 3, RetryTransport: rapid.Bool().Draw(t, "retry transport"), Sources: []Source{{}, {TTL: 300 * time.Millisecond}, {TTL: time.Second}},
		RequestTimeout: []time.Duration{0, 700 * time.Millisecond}[pick(t, "timeout", 2)], GateWait: []time.Duration{0, 400 * time.Millisecond}[pick(t, "gate wait", 2)],
		Merge: MergeConfig{Kind: MergeKind(pick(t, "merge", 2)), TierLabel: "tier", PriorityHeader: HeaderPriority}}
	for i := range 1 + pick(t, "pools", 2) {
		w.cfg.Pools = append(w.cfg.Pools, PoolConfig{Name: fmt.Sprint("p", i), Workers: 1 + pick(t, "workers", 3), Gate: drawGate(t, 1)})
	}
	var err error
	if w.m, err = New(w.cfg); err != nil {
		t.Fatal(err)
	}
	for range 1 + pick(t, "queues", 3) {
		w.add()
	}
	return w
}

func (w *world) add() {
	t, key := w.t, QueueKey(len(w.queue)+1)
	q := &worldQueue{cfg: QueueConfig{ID: fmt.Sprint("q", key), Name: fmt.Sprint("q", key), Pool: w.cfg.Pools[pick(t, "pool", len(w.cfg.Pools))].Name,
		BaseURL: "http://gw", Path: "/v1", Gate: drawGate(t, 2), Batch: 1 + pick(t, "batch", 6), Interval: 100 * time.Millisecond,
		Eager: rapid.Bool().Draw(t, "eager"), Ahead: 1 + pick(t, "ahead", 4), Labels: map[string]string{}},
		retries: map[string]struct {
			m   Message
			due time.Duration
		}{}}
	if tier := pick(t, "tier", 4); tier < 3 {
		q.cfg.Labels["tier"] = []string{TierInteractive, TierAsync, TierBatch}[tier]
	}
	w.queue[key] = q
	w.step(Event{Kind: AddQueue, Queue: key, QueueConfig: q.cfg})
}

func (w *world) submit() {
	keys := w.keys()
	key := keys[pick(w.t, "queue", len(keys))]
	id := fmt.Sprint("r", len(w.deadline))
	seconds := int64(w.now/time.Second) + int64(1+pick(w.t, "seconds", 5))
	w.deadline[id] = time.Duration(seconds) * time.Second
	r := Request{ID: id, Deadline: seconds, Payload: []byte("{}"), Metadata: map[string]string{}}
	if u := pick(w.t, "user", 4); u < 3 {
		r.Metadata["userid"] = string(rune('a' + u))
	}
	e, err := NewEnvelope(r, Internal{})
	if err != nil {
		w.t.Fatal(err)
	}
	q := w.queue[key]
	q.pending = append(q.pending, Message{Envelope: e})
	w.results[id] = 0
}

func (w *world) keys() []QueueKey {
	var out []QueueKey
	for k := QueueKey(1); int(k) <= len(w.queue); k++ {
		out = append(out, k)
	}
	return out
}

func (w *world) step(ev Event) {
	for _, o := range w.m.Step(w.now, ev, nil) {
		w.judge(o)
	}
	if at, ok := w.m.Deadline(); ok && at <= w.now {
		w.t.Fatalf("deadline %v at %v", at, w.now)
	}
	w.limits()
}

func (w *world) judge(o Out) {
	switch o.Kind {
	case Pull:
		if w.drained || w.queue[o.Queue].removed || o.Count <= 0 || o.Offset < 0 {
			w.t.Fatalf("%+v", o)
		}
		w.pulls = append(w.pulls, o)
	case Probe:
		w.probes = append(w.probes, o)
	case Read:
		w.reads = append(w.reads, o)
	case Acquire:
		w.asks = append(w.asks, o)
	case Free:
		key := o.Quota.Key(o.Value)
		if w.held[o.Hold] != key {
			w.t.Fatalf("frees %v of %s, which is %q", o.Hold, key, w.held[o.Hold])
		}
		delete(w.held, o.Hold)
		w.granted[key]--
	case Send:
		id := w.known(o)
		if _, again := w.flying[o.ID]; again || w.drained || w.now >= w.deadline[id] {
			w.t.Fatalf("sends %s at %v: again %v, drained %v, deadline %v", id, w.now, again, w.drained, w.deadline[id])
		}
		w.flying[o.ID] = o
		w.sends++
	case Abort:
		if _, ok := w.flying[o.ID]; !ok {
			w.t.Fatalf("aborts %v, which is not in flight", o.ID)
		}
	case Release:
		id := w.end(o)
		q := w.queue[o.Queue]
		q.pending = slices.Insert(q.pending, 0, w.again(o, id))
	case Retry:
		id := w.end(o)
		if o.Due <= w.now || o.Due > w.deadline[id] {
			w.t.Fatalf("retry of %s at %v due %v, deadline %v", id, w.now, o.Due, w.deadline[id])
		}
		m := Message{Envelope: *o.Envelope}
		w.queue[o.Queue].retries[id] = struct {
			m   Message
			due time.Duration
		}{m, o.Due}
	case Finish:
		id := w.end(o)
		w.results[id]++
		if r := o.Result; r.ID != id || (r.StatusCode > 0) == (r.ErrorCode != "") || w.results[id] > 1 {
			w.t.Fatalf("result %d of %s: %+v", w.results[id], id, r)
		}
		if o.Result.ErrorCode == CodeDeadlineExceeded && w.now < w.deadline[id] && o.Result.ErrorMessage == "deadline exceeded" {
			w.t.Fatalf("%s expires at %v before %v", id, w.now, w.deadline[id])
		}
	case Gone:
		if !w.queue[o.Queue].removed {
			w.t.Fatalf("%+v", o)
		}
	}
}

var envelopes = map[MessageID]Envelope{}

func (w *world) again(o Out, id string) Message {
	e := envelopes[o.ID]
	if e.Request.ID != id {
		w.t.Fatalf("envelope of %s is %s", id, e.Request.ID)
	}
	return Message{Envelope: e}
}

// known is the request of a delivery that has not ended.
func (w *world) known(o Out) string {
	id, ok := w.of[o.ID]
	if !ok {
		w.t.Fatalf("%+v: no such delivery, or it has ended", o)
	}
	return id
}

func (w *world) end(o Out) string {
	id := w.known(o)
	delete(w.of, o.ID)
	delete(w.flying, o.ID)
	return id
}

// limits are the bounds that hold after every step.
func (w *world) limits() {
	perPool := map[string]int{}
	for _, o := range w.flying {
		perPool[w.queue[o.Queue].cfg.Pool]++
	}
	for _, p := range w.cfg.Pools {
		if perPool[p.Name] > p.Workers {
			w.t.Fatalf("pool %s: %d in flight, %d workers", p.Name, perPool[p.Name], p.Workers)
		}
		if p.Gate != nil && p.Gate.Kind == LocalMaxConcurrency && perPool[p.Name] > p.Gate.Limit {
			w.t.Fatalf("pool %s: %d in flight, limit %d", p.Name, perPool[p.Name], p.Gate.Limit)
		}
	}
	if n := w.m.Live(); n != len(w.of) {
		w.t.Fatalf("live %d, %d deliveries have not ended", n, len(w.of))
	}
}

// answerOne answers one of the open questions.
func (w *world) answerOne() bool {
	n := len(w.pulls) + len(w.probes) + len(w.reads) + len(w.asks)
	ids := make([]MessageID, 0, len(w.flying))
	for id := range w.flying {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if n+len(ids) == 0 {
		return false
	}
	i := pick(w.t, "which", n+len(ids))
	take := func(l *[]Out) (Out, bool) {
		if i < len(*l) {
			o := (*l)[i]
			*l = slices.Delete(*l, i, i+1)
			return o, true
		}
		i -= len(*l)
		return Out{}, false
	}
	if o, ok := take(&w.pulls); ok {
		w.answerPull(o)
	} else if o, ok := take(&w.probes); ok {
		w.step(Event{Kind: Backlog, Queue: o.Queue, Count: len(w.queue[o.Queue].pending)})
	} else if o, ok := take(&w.reads); ok {
		w.step(Event{Kind: Reading, Source: o.Source, Status: Status(pick(w.t, "status", 3)), Value: float64(pick(w.t, "value", 11)) / 10})
	} else if o, ok := take(&w.asks); ok {
		w.answerQuota(o)
	} else {
		a := Answer{Status: []int{200, 200, 404, 429, 503, 302}[pick(w.t, "http", 6)], Body: "x"}
		if f := pick(w.t, "failure", 9); f < 3 {
			a = Answer{Failure: Failure(f + 1), Error: "e"}
		}
		if a.Status == 429 && pick(w.t, "after", 2) == 0 {
			a.RetryAfter = "2"
		}
		w.step(Event{Kind: Response, ID: ids[i], Response: a})
	}
	return true
}

func (w *world) answerPull(o Out) {
	q := w.queue[o.Queue]
	ev := Event{Kind: Pulled, Queue: o.Queue}
	if ev.Failed = pick(w.t, "failed", 12) == 0; !ev.Failed {
		for len(ev.Messages) < o.Count && o.Offset < len(q.pending) {
			msg := q.pending[o.Offset]
			q.pending = slices.Delete(q.pending, o.Offset, o.Offset+1)
			w.next++
			msg.ID = w.next
			msg.Cancelled = pick(w.t, "cancelled", 15) == 0
			w.of[msg.ID] = msg.Envelope.Request.ID
			envelopes[msg.ID] = msg.Envelope
			ev.Messages = append(ev.Messages, msg)
		}
	}
	w.step(ev)
}

func (w *world) answerQuota(o Out) {
	key := o.Quota.Key(o.Value)
	ev := Event{Kind: Acquired, ID: o.ID, Hold: o.Hold, Quota: Over}
	switch {
	case pick(w.t, "quota fails", 15) == 0:
		ev.Quota = QuotaFailed
	case int64(w.granted[key]) < o.Quota.Limit:
		ev.Quota = Within
		w.granted[key]++
		w.held[o.Hold] = key
	}
	w.step(ev)
}

func (w *world) pass(d time.Duration) {
	end := w.now + d
	for {
		at, ok := w.m.Deadline()
		if !ok || at > end {
			break
		}
		w.now = at
		w.step(Event{})
	}
	w.now = end
	for _, k := range w.keys() {
		q := w.queue[k]
		ids := make([]string, 0, len(q.retries))
		for id := range q.retries {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		for _, id := range ids {
			if r := q.retries[id]; r.due <= w.now {
				delete(q.retries, id)
				q.pending = append(q.pending, r.m)
			}
		}
	}
}

// TestSwarm plays random histories: every request ends in at most one result and is always in exactly one place, no limit is ever
// exceeded, and after the end nothing is held (INV of the AP families: AP-RES-01, AP-QUOTA-04, AP-GATE-40, AP-DRAIN-04).
func TestSwarm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clear(envelopes)
		w := newWorld(t)
		for range rapid.IntRange(1, 120).Draw(t, "events") {
			switch k := pick(t, "event", 24); {
			case k < 6:
				w.submit()
			case k < 15:
				w.answerOne()
			case k < 21:
				w.pass([]time.Duration{0, 20, 100, 100, 500, 1500}[pick(t, "gap", 6)] * time.Millisecond)
			case k == 21 && w.next > 0:
				w.step(Event{Kind: Cancel, ID: MessageID(1 + pick(t, "id", int(w.next)))})
			case k == 22 && len(w.queue) < 5:
				if pick(t, "add", 2) == 0 {
					w.add()
				} else {
					key := QueueKey(1 + pick(t, "remove", len(w.queue)))
					w.queue[key].removed = true
					w.step(Event{Kind: RemoveQueue, Queue: key})
				}
			default:
				w.step(Event{Kind: Wake, Queue: QueueKey(1 + pick(t, "wake", len(w.queue)))})
			}
		}
		w.finish()
	})
}

// finish drains the machine and looks whether everything is accounted for.
func (w *world) finish() {
	w.drained = true
	w.step(Event{Kind: Drain})
	for range pick(w.t, "drain", 6) {
		w.answerOne()
	}
	w.step(Event{Kind: Abandon})
	for w.answerOne() {
	}
	if w.m.Live() != 0 || w.m.Outstanding() != 0 || len(w.of) != 0 || len(w.held) != 0 {
		w.t.Fatalf("at the end: live %d, outstanding %d, deliveries %v, holds %v", w.m.Live(), w.m.Outstanding(), w.of, w.held)
	}
	if at, ok := w.m.Deadline(); ok {
		w.t.Fatalf("at the end: deadline %v", at)
	}
	for _, p := range w.m.pools {
		w.empty(p.gate)
	}
	for _, q := range w.m.queues {
		w.empty(q.gate)
	}
	places := map[string]int{}
	for _, q := range w.queue {
		for _, m := range q.pending {
			places[m.Envelope.Request.ID]++
		}
		for id := range q.retries {
			places[id]++
		}
	}
	for id, n := range w.results {
		if n+places[id] != 1 {
			w.t.Fatalf("%s has %d results and is in %d places of the broker", id, n, places[id])
		}
	}
}

func (w *world) empty(n *node) {
	if n == nil {
		return
	}
	if n.used != 0 {
		w.t.Fatalf("%d slots are still taken", n.used)
	}
	for _, i := range n.inner {
		w.empty(i)
	}
}
