package processor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

// memberLimit is how many members of a key are kept.
const memberLimit = 1000

func (r *rig) brokerStep(ctx, take context.Context, s sut.AsyncStep, rec *evidence.Step) error {
	b := r.brokers[0]
	if s.Who == "2" {
		if _, err := r.token(ctx, nil, "BROKER2"); err != nil {
			return err
		}
		b = r.brokers[1]
	}
	switch s.Op {
	case sut.AsyncSubmit:
		return r.submit(ctx, b, s, rec)
	case sut.AsyncCancel:
		return r.cancel(ctx, b, s.IDs)
	case sut.AsyncListen:
		if s.Who == "2" {
			s.Mode = "second"
		}
		return r.listen(take, s)
	case sut.AsyncTopics:
		if _, err := r.pubsub(ctx); err != nil {
			return err
		}
		return r.topics.create(ctx, s.Queue, s.Mode == "dead-letter")
	case sut.AsyncResults:
		r.work(ctx, s, rec, func() bool { return r.taken(s.IDs) >= s.Count }, func() string { return fmt.Sprintf("%d of %d results came", r.taken(s.IDs), s.Count) })
	case sut.AsyncSet:
		return set(ctx, b, s)
	case sut.AsyncSize:
		n := int64(0)
		var seen []evidence.BrokerKey
		r.barrier(ctx, s, rec, func() bool {
			n, seen = r.sizes(ctx, b, s.Names)
			switch s.Mode {
			case "least":
				return n >= int64(s.Count)
			case "most":
				return n <= int64(s.Count)
			}
			return n == int64(s.Count)
		}, func() string { return fmt.Sprintf("together they have %d, not %d", n, s.Count) })
		for i := range seen { // what met the barrier, or the last that did not
			r.out.Observe(evidence.Observation{At: int64(r.clock.Now()), Mark: s.Mark, Key: &seen[i]})
		}
	case sut.AsyncLook:
		for _, name := range s.Names {
			k := r.state(ctx, b, name)
			r.out.Observe(evidence.Observation{At: int64(r.clock.Now()), Mark: s.Mark, Key: &k})
		}
	case sut.AsyncBroker:
		switch s.Mode {
		case "pause":
			b.proxy.pause()
		case "resume":
			b.proxy.resume()
		case "down":
			b.proxy.down()
		case "up":
			return b.proxy.up()
		case "cut":
			b.proxy.cut()
		case "broken":
			b.proxy.breakUp()
		default:
			return fmt.Errorf("unknown mode %q", s.Mode)
		}
	default:
		return fmt.Errorf("unknown operation %q", s.Op)
	}
	return nil
}

func set(ctx context.Context, b *broker, s sut.AsyncStep) error {
	for k, v := range s.Keys {
		var err error
		switch {
		case v == "":
			err = b.direct.Del(ctx, k).Err()
		case s.Mode == "list":
			err = b.direct.RPush(ctx, k, v).Err()
		default:
			err = b.direct.Set(ctx, k, v, 0).Err()
		}
		if err != nil {
			return fmt.Errorf("key %s: %w", k, err)
		}
	}
	return nil
}

// sizes adds the sizes of keys up, and gives what it saw of each.
func (r *rig) sizes(ctx context.Context, b *broker, names []string) (int64, []evidence.BrokerKey) {
	n := int64(0)
	var seen []evidence.BrokerKey
	for _, name := range names {
		k := r.state(ctx, b, name)
		n += k.Size
		seen = append(seen, k)
	}
	return n, seen
}

// state reads one key. Names that begin with a colon are facts about what surrounds the processor, and about itself.
func (r *rig) state(ctx context.Context, b *broker, name string) evidence.BrokerKey {
	k := evidence.BrokerKey{Name: name, TTL: evidence.Never}
	if strings.HasPrefix(name, ":") {
		if n, ok := r.fact(ctx, b, name); ok {
			k.Type, k.Size = "fact", n
		}
		return k
	}
	c := b.direct
	k.Type = c.Type(ctx, name).Val()
	switch k.Type {
	case "string":
		k.Value = c.Get(ctx, name).Val()
		k.Size = 1
	case "list":
		k.Size = c.LLen(ctx, name).Val()
		k.Members = c.LRange(ctx, name, 0, memberLimit-1).Val()
	case "zset":
		k.Size = c.ZCard(ctx, name).Val()
		k.Members = c.ZRange(ctx, name, 0, memberLimit-1).Val()
	case "hash":
		k.Size = c.HLen(ctx, name).Val()
		k.Members = c.HVals(ctx, name).Val()
		slices.Sort(k.Members)
		k.Members = k.Members[:min(len(k.Members), memberLimit)]
	}
	if ttl := c.PTTL(ctx, name).Val(); ttl > 0 {
		k.TTL = int64(ttl)
	}
	return k
}

// request is the public form of a message.
type request struct {
	ID       string            `json:"id"`
	Created  json.RawMessage   `json:"created,omitempty"`
	Deadline json.RawMessage   `json:"deadline,omitempty"`
	Payload  json.RawMessage   `json:"payload,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Endpoint string            `json:"endpoint,omitempty"`
}

// submit puts messages where processors find them.
func (r *rig) submit(ctx context.Context, b *broker, s sut.AsyncStep, rec *evidence.Step) error {
	for _, m := range s.Messages {
		rec.IDs = append(rec.IDs, m.ID)
		now := clock.Wall()
		after := m.Deadline
		if after == 0 {
			after = time.Minute
		}
		deadline := int64(math.Ceil(float64(now.Add(after).UnixNano()) / 1e9))
		raw := json.RawMessage(strconv.FormatInt(deadline, 10))
		seen := deadline*int64(time.Second) - r.clock.Epoch().UnixNano()
		if m.Late != "" {
			raw, seen = json.RawMessage(m.Late), evidence.Never
			if m.Late == "none" {
				raw = nil
			}
		}
		payload := m.Payload
		if payload == "" {
			payload = fmt.Sprintf(`{"model":"m","prompt":"p","weir_id":%q}`, m.ID)
		}
		endpoint, err := r.expand(ctx, nil, m.Endpoint)
		if err != nil {
			return fmt.Errorf("message %s: %w", m.ID, err)
		}
		q := request{ID: m.ID, Created: json.RawMessage(m.Created), Deadline: raw, Payload: json.RawMessage(payload), Metadata: m.Metadata, Headers: m.Headers, Endpoint: endpoint}
		if m.Created == "" {
			q.Created = json.RawMessage(strconv.FormatInt(now.Unix(), 10))
		}
		body, err := compact(q)
		if err != nil {
			return fmt.Errorf("message %s: %w", m.ID, err)
		}
		if err := r.put(ctx, b, s, m, body, deadline); err != nil {
			return fmt.Errorf("message %s: %w", m.ID, err)
		}
		r.out.Observe(evidence.Observation{At: int64(r.clock.Now()), Mark: s.Mark, Message: &evidence.Message{ID: m.ID, Queue: s.Queue, Deadline: seen}})
	}
	return nil
}

// compact writes a request with its payload byte for byte, which json.Marshal would not do.
func compact(q request) ([]byte, error) {
	payload := q.Payload
	q.Payload = nil
	raw, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	return slices.Concat(raw[:len(raw)-1], []byte(`,"payload":`), payload, []byte("}")), nil
}

func (r *rig) put(ctx context.Context, b *broker, s sut.AsyncStep, m sut.AsyncMessage, body []byte, deadline int64) error {
	if s.Mode == "pubsub" {
		if _, err := r.pubsub(ctx); err != nil {
			return err
		}
		r.topics.publish(s.Queue, body, nil)
		return nil
	}
	internal := map[string]any{}
	if len(m.Labels) > 0 {
		internal["labels"] = m.Labels
	}
	token := ""
	if !m.NoToken && m.Member == "" && s.Mode == "" {
		token = newToken()
		internal["request_token"] = token
		internal["enqueued_at_ms"] = clock.Wall().UnixMilli()
	}
	head, err := json.Marshal(internal)
	if err != nil {
		return err
	}
	member := fmt.Sprintf(`{"internal":%s,"request_kind":"plain","data":%s}`, head, body)
	if m.Member != "" {
		member = strings.NewReplacer("$ID", m.ID, "$DEADLINE", strconv.FormatInt(deadline, 10), "$DATA", string(body)).Replace(m.Member)
	}
	if s.Mode == "channel" {
		return b.direct.Publish(ctx, s.Queue, member).Err()
	}
	// Equal deadlines leave in the order of submission where the score has the order in its fraction (spec/async-processor.md §1.1).
	r.sent++
	score := float64(deadline) + float64(r.sent%10_000)/10_000
	_, err = b.direct.TxPipelined(ctx, func(p redis.Pipeliner) error {
		if token != "" {
			p.Del(ctx, "request-cancel:"+m.ID)
			p.Set(ctx, "request-active:"+m.ID, token, time.Hour)
		}
		p.ZAdd(ctx, s.Queue, redis.Z{Score: score, Member: member})
		return nil
	})
	if err == nil && token != "" {
		r.mu.Lock()
		r.tokens[m.ID] = token
		r.mu.Unlock()
	}
	return err
}

func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// cancel withdraws messages as their producer does.
func (r *rig) cancel(ctx context.Context, b *broker, ids []string) error {
	for _, id := range ids {
		r.mu.Lock()
		token := r.tokens[id]
		r.mu.Unlock()
		if err := b.direct.Set(ctx, "request-cancel:"+id, token, 7*24*time.Hour).Err(); err != nil {
			return fmt.Errorf("cancel %s: %w", id, err)
		}
	}
	return nil
}
