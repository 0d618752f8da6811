package asyncproc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/redisq"
)

// eventBuffer bounds the events that wait for the machine; a full buffer makes whoever reports wait.
const eventBuffer = 1024

// driver owns the machine.
type driver struct {
	machine   *async.Machine
	step      Step // of machine
	clock     clock.Clock
	epoch     int64 // Unix nanoseconds of offset 0
	broker    broker
	parse     func(redisq.Delivery) (async.Envelope, error)
	flow      func(queue string, limit int)                          // of transports that are told how much may be inside; nil: none
	published func(redisq.Delivery) time.Time                        // of transports that know; nil: none
	size      func(ctx context.Context, queue string) (int64, error) // messages in the broker
	marked    func(ctx context.Context, ids, tokens []string) ([]bool, error)
	results   string // general result destination
	http      *http.Client
	sources   *sources
	quotas    *quotas
	writer    *writer
	leases    *leases
	metrics   *Metrics
	tracer    tracer
	log       *slog.Logger

	events chan event
	slots  chan struct{}   // one value for each message that a channel has delivered
	ctx    context.Context // ends what the driver has started
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	done   chan struct{} // the goroutine has ended
	idle   chan struct{} // closed when a drain has nothing left to wait for
	nextID atomic.Uint64

	// Owned by the goroutine.
	served  map[async.QueueKey]*served
	carried map[async.MessageID]*carried
	asking  int // pulls and probes without an answer
	down    bool
	idled   bool
	outs    []async.Out
	states  []async.QueueState
	gates   []async.GateState
	pools   []string
	timer   *time.Timer
	armed   time.Duration
	isArmed bool
}

// served is a queue that the machine knows.
type served struct {
	key    async.QueueKey
	cfg    asyncconfig.Queue
	labels labels
}

// carried is a message inside the process.
type carried struct {
	id       async.MessageID
	queue    *served
	delivery redisq.Delivery
	envelope async.Envelope
	target   string
	sent     time.Duration
	stop     context.CancelFunc // of the attempt
	trace    context.Context    // carries span
	span     trace.Span
	failed   string // why the last attempt failed
}

// event is one thing for the goroutine to do.
type event struct {
	ev      async.Event
	carried []*carried // Pulled
	served  *served    // AddQueue
	answer  bool       // of a pull or a probe
	ack     chan struct{}
}

func (d *driver) post(e event) {
	select {
	case d.events <- e:
	case <-d.done:
	}
}

// await posts an event and returns after the machine knows.
func (d *driver) await(e event) {
	e.ack = make(chan struct{})
	d.post(e)
	select {
	case <-e.ack:
	case <-d.done:
	}
}

// spawn runs f on a goroutine that close waits for.
func (d *driver) spawn(f func()) { d.tasks.Go(f) }

// run is the goroutine that owns the machine.
func (d *driver) run() {
	defer close(d.done)
	for {
		var fired <-chan time.Time
		if d.isArmed {
			fired = d.timer.C
		}
		select {
		case e := <-d.events:
			d.handle(e)
			for n := len(d.events); n > 0; n-- { // what has come meanwhile needs no further wake-up
				d.handle(<-d.events)
			}
		case <-fired:
			d.isArmed = false
			d.handle(event{})
		case <-d.ctx.Done():
			d.disarm()
			return
		}
		d.publish()
		d.arm()
	}
}

// arm keeps the timer at or before the machine's deadline. A timer that is too early stays: an extra tick is harmless.
func (d *driver) arm() {
	at, ok := d.machine.Deadline()
	if !ok || (d.isArmed && d.armed <= at) {
		return
	}
	d.disarm()
	d.timer, d.armed, d.isArmed = d.clock.Timer(max(0, at-d.clock.Now())), at, true
}

func (d *driver) disarm() {
	if d.isArmed {
		d.timer.Stop()
		d.isArmed = false
	}
}

// publish shows the machine's state, and whether a drain is over.
func (d *driver) publish() {
	d.states = d.machine.Queues(d.states[:0])
	for _, s := range d.states {
		if q := d.served[s.Key]; q != nil {
			d.metrics.state(q.labels, s, q.cfg.Push && d.flow == nil)
		}
	}
	d.gates = d.machine.Gates(d.gates[:0])
	for _, g := range d.gates {
		l := labels{"", "", d.pools[g.Pool]}
		if q := d.served[g.Queue]; q != nil {
			l = q.labels
		}
		d.metrics.gate(l, g)
	}
	if d.down && !d.idled && d.machine.Live() == 0 && d.machine.Outstanding() == 0 && d.asking == 0 {
		d.idled = true
		close(d.idle)
	}
}

func (d *driver) handle(e event) {
	d.before(e)
	d.outs = d.step(d.clock.Now(), e.ev, d.outs[:0])
	for i := range d.outs {
		d.do(&d.outs[i])
	}
	if e.ack != nil {
		close(e.ack)
	}
}

// before keeps the driver's own books of an event that the machine is about to see.
func (d *driver) before(e event) {
	if e.answer {
		d.asking--
	}
	for _, c := range e.carried {
		d.carried[c.id] = c
	}
	switch e.ev.Kind {
	case async.AddQueue:
		d.served[e.ev.Queue] = e.served
	case async.Drain, async.Abandon:
		d.down = true
	case async.Response:
		if c := d.carried[e.ev.ID]; c != nil {
			d.metrics.inference.WithLabelValues(c.queue.labels[:]...).Observe(millis(d.clock.Now() - c.sent))
			c.failed = category(e.ev.Response)
		}
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// do carries out one decision. It never blocks.
func (d *driver) do(o *async.Out) {
	switch o.Kind {
	case async.Pull:
		q, want := d.served[o.Queue], batch{o.Count, o.Offset}
		d.asking++
		d.spawn(func() { d.pull(q, want) })
	case async.Flow:
		if q := d.served[o.Queue]; q != nil && d.flow != nil {
			d.flow(q.cfg.Name, o.Count)
		}
	case async.Probe:
		q := d.served[o.Queue]
		d.asking++
		d.spawn(func() { d.probe(q) })
	case async.Read:
		source := o.Source
		d.spawn(func() { d.read(source) })
	case async.Acquire:
		id, hold := o.ID, o.Hold
		d.quotas.ask(d.ctx, question{*o, func(a async.QuotaAnswer) {
			d.post(event{ev: async.Event{Kind: async.Acquired, ID: id, Hold: hold, Quota: a}})
		}}, d.spawn)
	case async.Free:
		ask := *o
		d.quotas.frees.Add(1)
		d.spawn(func() {
			defer d.quotas.frees.Done()
			d.quotas.giveBack(d.ctx, &ask)
		})
	case async.Send:
		d.send(o)
	case async.Abort:
		if c := d.carried[o.ID]; c != nil && c.stop != nil {
			c.stop()
		}
	case async.Release, async.Retry, async.Finish, async.DeadLetter:
		d.end(o)
	case async.Gone:
		delete(d.served, o.Queue)
	default:
		d.count(o)
	}
}

// batch is how much to pull, and after how many.
type batch struct{ count, offset int }

// count notes a fact.
func (d *driver) count(o *async.Out) {
	q := d.served[o.Queue]
	if q == nil {
		return
	}
	l := q.labels
	switch o.Kind {
	case async.Take:
		d.metrics.residence.WithLabelValues(l[:]...).Observe(millis(o.Waited))
		if c := d.carried[o.ID]; c != nil {
			d.tracer.begin(c)
		}
	case async.First:
		d.metrics.requests.WithLabelValues(l[:]...).Inc()
	case async.Shed:
		d.metrics.sheds.WithLabelValues(l[:]...).Inc()
	case async.Deny:
		if o.AtPool {
			l = labels{"", "", d.pools[o.Pool]}
		}
		d.metrics.decisions.WithLabelValues(append(l[:], o.Reason.String())...).Inc()
	}
}

// pull asks the broker and reports what it gave.
func (d *driver) pull(q *served, want batch) {
	e := event{ev: async.Event{Kind: async.Pulled, Queue: q.key}, answer: true}
	if !d.writer.waitRoom(d.ctx) {
		return
	}
	ds, err := d.broker.Pull(d.ctx, q.cfg.Name, want.count, want.offset)
	if e.ev.Failed = err != nil; err != nil {
		d.log.Warn("pull", "queue", q.cfg.Name, "error", err)
	}
	d.receive(&e, q, ds)
	d.post(e)
}

// receive reads deliveries into an event.
func (d *driver) receive(e *event, q *served, ds []redisq.Delivery) {
	var ids, tokens []string
	for _, delivery := range ds {
		c := &carried{id: async.MessageID(d.nextID.Add(1)), queue: q, delivery: delivery}
		m := async.Message{ID: c.id}
		var err error
		if m.Envelope, err = d.parse(delivery); err != nil {
			m.Unreadable = errors.Is(err, async.ErrUnreadable)
			m.Invalid = err.Error()
			d.log.Warn("message", "queue", q.cfg.Name, "request", m.Envelope.Request.ID, "error", err)
		}
		c.envelope = m.Envelope
		e.carried = append(e.carried, c)
		e.ev.Messages = append(e.ev.Messages, m)
		ids, tokens = append(ids, m.Envelope.Request.ID), append(tokens, m.Envelope.Internal.RequestToken)
	}
	d.leases.add(e.carried)
	if len(ds) == 0 || d.marked == nil {
		return
	}
	marks, err := d.marked(d.ctx, ids, tokens)
	if err != nil { // the watch over cancel marks asks again
		d.log.Warn("cancel marks", "queue", q.cfg.Name, "error", err)
		return
	}
	for i, cancelled := range marks {
		e.ev.Messages[i].Cancelled = cancelled
	}
}

func (d *driver) probe(q *served) {
	n, err := d.size(d.ctx, q.cfg.Name)
	if err != nil {
		d.log.Warn("backlog", "queue", q.cfg.Name, "error", err)
	}
	d.post(event{ev: async.Event{Kind: async.Backlog, Queue: q.key, Count: int(n)}, answer: true})
}

func (d *driver) read(source async.SourceID) {
	status, v, err := d.sources.read(d.ctx, source)
	if err != nil {
		d.log.Warn("gate source", "error", err)
	}
	d.post(event{ev: async.Event{Kind: async.Reading, Source: source, Status: status, Value: v}})
}

// send makes an attempt on a goroutine of its own.
func (d *driver) send(o *async.Out) {
	c := d.carried[o.ID]
	ctx, stop := context.WithCancel(d.ctx)
	c.stop, c.target, c.sent = stop, o.Request.URL, d.clock.Now()
	to, id, body := o.Request, o.ID, []byte(c.envelope.Request.Payload)
	if to.Body != nil {
		body = to.Body
	}
	d.log.Debug("attempt", "request", c.envelope.Request.ID, "queue", c.queue.cfg.Name, "attempt", c.envelope.Internal.RetryCount)
	headers, done := d.tracer.attempt(c)
	d.spawn(func() {
		defer stop()
		a := attempt(ctx, d.http, to, body, headers)
		done(a)
		d.post(event{ev: async.Event{Kind: async.Response, ID: id, Response: a}})
	})
}

// end hands a message's end to the writer. A retry is counted when it is decided, an outcome when it is published.
func (d *driver) end(o *async.Out) {
	c := d.carried[o.ID]
	if c == nil {
		return
	}
	delete(d.carried, o.ID)
	d.tracer.end(c, o)
	l := c.queue.labels
	op := redisq.Op{Delivery: c.delivery, ID: c.envelope.Request.ID, Token: c.envelope.Internal.RequestToken}
	end := ending{c: c}
	switch o.Kind {
	case async.Retry:
		op.Kind, op.Member, op.Due = redisq.Retry, o.Envelope.Encode(), float64(d.epoch+int64(o.Due))/1e9
		d.metrics.retries.WithLabelValues(l[:]...).Inc()
	case async.Finish:
		op.Kind, op.Result, op.To, op.TTL = redisq.Finish, o.Result.Encode(), d.destination(c), c.queue.cfg.ResultTTL
		r := o.Result
		end.result = &r
	case async.DeadLetter:
		op.Kind = redisq.DeadLetter
		d.metrics.dead.WithLabelValues(l[:]...).Inc()
	case async.Release:
		op.Kind = redisq.Release
		if c.queue.cfg.Push { // a channel cannot take it back; the retry set can, if it knows where it belongs
			e := c.envelope
			e.Internal.RequestQueueName = c.queue.cfg.Name
			op.Member, op.Due = e.Encode(), float64(d.epoch+int64(d.clock.Now()))/1e9
		}
	}
	d.writer.add(op, end)
}

// destination is where a message's result goes: the queue's own, the message's, the general one (AP-CFG-14).
func (d *driver) destination(c *carried) string {
	switch {
	case c.queue.cfg.ResultQueue != "":
		return c.queue.cfg.ResultQueue
	case c.envelope.Internal.ResultQueueName != "":
		return c.envelope.Internal.ResultQueueName
	}
	return d.results
}

// ending is what the writer's end of a delivery is about.
type ending struct {
	c      *carried
	result *async.Result
}

// ended is called by the writer.
func (d *driver) ended(op *redisq.Op, tag any, done bool) {
	e, _ := tag.(ending)
	d.leases.remove(e.c.id)
	if e.c.queue.cfg.Push {
		<-d.slots
	}
	l := e.c.queue.labels
	if !done {
		d.log.Warn("the message's lease was lost; somebody else ends it", "request", op.ID, "queue", op.Delivery.Queue)
		if e.result != nil {
			d.metrics.fenced.WithLabelValues(l[:]...).Inc()
		}
		return
	}
	if e.result != nil {
		d.metrics.finished(l, e.c.target, e.result)
		if d.published != nil && e.result.Successful() {
			d.metrics.latency.WithLabelValues(l[:]...).Observe(millis(time.Duration(d.epoch) + d.clock.Now() - time.Duration(d.published(op.Delivery).UnixNano())))
		}
	}
}

// close ends the goroutine and everything it has started.
func (d *driver) close() {
	d.cancel()
	<-d.done
	d.tasks.Wait()
}
