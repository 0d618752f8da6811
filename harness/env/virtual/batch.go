package virtual

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/asyncproc"
)

// batchEpoch is the wall time at which every virtual run begins.
var batchEpoch = time.Unix(1_700_000_000, 0)

// batch is the Async Processor's machine on the agenda, with its broker: sorted sets in memory.
type batch struct {
	*env.BatchLog
	st       *stage
	machine  *async.Machine
	advance  asyncproc.Step // of machine
	queues   map[async.QueueKey]*batchQueue
	byName   map[string]*batchQueue
	messages map[async.MessageID]*batchMessage
	nextID   async.MessageID
	nextSeq  int
	outs     []async.Out
}

type batchQueue struct {
	key     async.QueueKey
	waiting []waitingMessage // the earliest deadline first, among equals as they came
}

type waitingMessage struct {
	envelope async.Envelope
	seq      int
}

type batchMessage struct {
	queue    *batchQueue
	envelope async.Envelope
	seq      int
	client   *client // of the attempt
	try      *evidence.Observation
}

var _ sut.Batcher = (*stage)(nil)

func (st *stage) startBatch() error {
	c := st.sys.cfg.Batch
	if c == nil {
		return nil
	}
	doc, err := c.Document("redis://virtual:6379", "http://gateway", "virtual")
	if err != nil {
		return err
	}
	cfg, err := env.LoadBatch(*c, doc, "")
	if err != nil {
		return fmt.Errorf("batch processor: %w", err)
	}
	st.out.File("processor.json", []byte(doc))
	b := &batch{BatchLog: env.NewBatchLog(st.Now, st.out, func() {}), st: st, queues: map[async.QueueKey]*batchQueue{}, byName: map[string]*batchQueue{},
		messages: map[async.MessageID]*batchMessage{}}
	b.machine, err = async.New(async.Config{EpochUnix: batchEpoch.UnixNano(), Seed: 1, Pools: cfg.Pools, Merge: cfg.Merge, RequestTimeout: cfg.Flags.RequestTimeout,
		GateWait: cfg.Flags.GateWaitTimeout, RetryTransport: cfg.Flags.RetryTransportErrors})
	if err != nil {
		return fmt.Errorf("batch processor: %w", err)
	}
	b.advance = b.machine.Step
	if f := st.sys.opts.Tamper.Batch; f != nil {
		b.advance = f(b.machine.Step)
	}
	st.batch = b
	for i, q := range cfg.Queues {
		b.add(async.QueueKey(i+1), q)
	}
	return nil
}

func (b *batch) add(key async.QueueKey, q asyncconfig.Queue) {
	own := &batchQueue{key: key}
	b.queues[key], b.byName[q.Name] = own, own
	b.step(async.Event{Kind: async.AddQueue, Queue: key, QueueConfig: q.QueueConfig})
}

// Enqueue implements sut.Batcher.
func (st *stage) Enqueue(queue string, m sut.AsyncMessage) error {
	if st.batch == nil {
		return errors.New("the configuration has no batch processor")
	}
	q := st.batch.byName[queue]
	if q == nil {
		return fmt.Errorf("unknown queue %q", queue)
	}
	r := env.BatchRequest(st.scenario, m, batchEpoch.Add(st.now))
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	e, err := async.Parse(fmt.Appendf(nil, `{"internal":{"request_token":%q},"request_kind":"plain","data":%s}`, m.ID, data))
	if err != nil {
		return err
	}
	st.batch.Submitted(queue, r, batchEpoch)
	st.batch.put(q, e)
	return nil
}

// Results implements sut.Batcher.
func (st *stage) Results(ids []string) int {
	if st.batch == nil {
		return 0
	}
	return st.batch.BatchLog.Results(ids)
}

// Tried implements sut.Batcher.
func (st *stage) Tried(ids []string, status int) int {
	if st.batch == nil {
		return 0
	}
	return st.batch.BatchLog.Tried(ids, status)
}

func (b *batch) put(q *batchQueue, e async.Envelope) {
	b.nextSeq++
	q.put(waitingMessage{e, b.nextSeq})
}

func (q *batchQueue) put(w waitingMessage) {
	q.waiting = append(q.waiting, w)
	sort.SliceStable(q.waiting, func(i, j int) bool {
		x, y := q.waiting[i], q.waiting[j]
		if x.envelope.Request.Deadline != y.envelope.Request.Deadline {
			return x.envelope.Request.Deadline < y.envelope.Request.Deadline
		}
		return x.seq < y.seq
	})
}

// step feeds the machine and carries its decisions out.
func (b *batch) step(ev async.Event) {
	outs := b.advance(b.st.now, ev, b.outs[:0])
	b.outs = nil
	for i := range outs {
		b.do(&outs[i])
	}
	b.outs = outs[:0]
	if at, ok := b.machine.Deadline(); ok {
		b.st.at(at, func() {
			if due, ok := b.machine.Deadline(); ok && due <= b.st.now {
				b.step(async.Event{Kind: async.Tick})
			}
		})
	}
}

func (b *batch) do(o *async.Out) {
	switch o.Kind {
	case async.Pull:
		q, n, offset := b.queues[o.Queue], o.Count, o.Offset
		b.st.after(hop, func() { b.pull(q, n, offset) })
	case async.Probe:
		q := b.queues[o.Queue]
		b.st.after(hop, func() { b.step(async.Event{Kind: async.Backlog, Queue: q.key, Count: len(q.waiting)}) })
	case async.Send:
		b.send(o.ID, o.Request)
	case async.Abort:
		if m := b.messages[o.ID]; m != nil && m.client != nil && !m.client.ended {
			c := m.client
			b.End(m.try, evidence.Dropped, 0, "")
			c.onEnd = nil
			c.end(b.st, evidence.ClientCancelled)
			b.st.after(hop, c.call.clientLeft)
		}
	case async.Release:
		if m := b.messages[o.ID]; m != nil {
			delete(b.messages, o.ID)
			m.queue.put(waitingMessage{m.envelope, m.seq})
		}
	case async.Retry:
		if m := b.messages[o.ID]; m != nil {
			delete(b.messages, o.ID)
			q, e := m.queue, *o.Envelope
			b.st.at(o.Due, func() { b.put(q, e) })
		}
	case async.Finish:
		delete(b.messages, o.ID)
		raw, err := json.Marshal(o.Result)
		if err != nil {
			panic(fmt.Sprintf("result %s: %v", o.Result.ID, err)) // strings and numbers
		}
		b.st.after(hop, func() { b.Result(raw) })
	case async.DeadLetter:
		delete(b.messages, o.ID)
	default: // facts; quotas and sources are not configured here
	}
}

func (b *batch) pull(q *batchQueue, n, offset int) {
	ev := async.Event{Kind: async.Pulled, Queue: q.key}
	offset = min(offset, len(q.waiting))
	n = min(n, len(q.waiting)-offset)
	for _, w := range q.waiting[offset : offset+n] {
		b.nextID++
		b.messages[b.nextID] = &batchMessage{queue: q, envelope: w.envelope, seq: w.seq}
		ev.Messages = append(ev.Messages, async.Message{ID: b.nextID, Envelope: w.envelope})
	}
	q.waiting = append(q.waiting[:offset:offset], q.waiting[offset+n:]...)
	b.step(ev)
}

// send makes one attempt at the router.
func (b *batch) send(id async.MessageID, out async.Outgoing) {
	m := b.messages[id]
	st := b.st
	body := out.Body
	if body == nil {
		body = m.envelope.Request.Payload
	}
	r := sut.Request{ID: m.envelope.Request.ID, Body: string(body), Stream: strings.Contains(string(body), `"stream":true`)}
	if u, err := url.Parse(out.URL); err == nil {
		r.Path = u.Path
	}
	headers, seen := map[string]string{}, map[string][]string{}
	for _, h := range out.Headers {
		headers[h.Name], seen[h.Name] = h.Value, []string{h.Value}
	}
	r.HoldAfter, _ = strconv.Atoi(headers[wire.HeaderHoldAfter])
	c := &client{rec: env.Sent(st.scenario, r, body), req: r, body: body, headers: maps.Clone(headers), batch: true}
	c.rec.Intended, c.rec.Sent = int64(st.now), int64(st.now)
	c.call = &call{st: st, client: c}
	m.client, m.try = c, b.Begin(r.ID, seen)
	c.onEnd = func() { b.ended(id, m) }
	st.after(hop, c.call.start)
}

// ended tells the machine how an attempt ended.
func (b *batch) ended(id async.MessageID, m *batchMessage) {
	rec := m.client.rec
	a := async.Answer{Status: rec.Status, Body: rec.Text}
	ending := evidence.Answered
	switch rec.Outcome {
	case evidence.Completed:
		a.Status, a.Body = 200, fmt.Sprintf(`{"usage":{"completion_tokens":%d}}`, rec.Tokens)
		if m.client.req.Stream {
			a.Body = "data: [DONE]\n\n"
		}
	case evidence.Refused:
	case evidence.KilledMidStream:
		ending, a.Failure, a.Error = evidence.BrokenOff, async.Truncated, "the response broke off"
	default:
		ending, a.Failure, a.Error = evidence.BrokenOff, async.Transport, rec.Outcome
	}
	b.End(m.try, ending, a.Status, rec.Reason)
	b.step(async.Event{Kind: async.Response, ID: id, Response: a})
}
