// Package pubsubq is the Async Processor's transport over GCP Pub/Sub.
//
//	subscription --Receive--> delivery --Apply--> result published and awaited --> ack
//	     ^                              \--> retry, refusal: nack; the subscription's retry policy says when it comes again
//	     +------------------------------------------/
//
// A message is acknowledged only after its result was taken by the topic, so that a kill between the two delivers it again instead of
// losing the result (spec/async-processor.md §1.5). Bodies are bare requests; attributes join their metadata and win.
package pubsubq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/redisq"
)

// Broker is one project's subscriptions and result topics.
type Broker struct {
	client *pubsub.Client
	ctx    context.Context // of the process
	mu     sync.Mutex
	topics map[string]*pubsub.Publisher
}

// message is the handle of a delivery.
type message struct {
	m     *pubsub.Message
	ended chan struct{}
	once  sync.Once
}

// New makes a broker; what has not ended when ctx does is left to the server. PUBSUB_EMULATOR_HOST and Google's default credentials work as the library has it.
func New(ctx context.Context, project string) (*Broker, error) {
	c, err := pubsub.NewClient(ctx, project)
	if err != nil {
		return nil, fmt.Errorf("pubsub project %s: %w", project, err)
	}
	return &Broker{client: c, ctx: ctx, topics: map[string]*pubsub.Publisher{}}, nil
}

// Close ends the connections.
func (b *Broker) Close() error {
	b.mu.Lock()
	for _, t := range b.topics {
		t.Stop()
	}
	b.mu.Unlock()
	return b.client.Close()
}

// Receive gives what a subscription has to deliver until ctx ends, with at most limit deliveries that have not ended. It returns when
// the last of them has.
func (b *Broker) Receive(ctx context.Context, subscription string, limit int, deliver func(redisq.Delivery)) error {
	s := b.client.Subscriber(subscription)
	s.ReceiveSettings.MaxOutstandingMessages = limit
	s.ReceiveSettings.NumGoroutines = 1
	err := s.Receive(ctx, func(_ context.Context, m *pubsub.Message) {
		h := &message{m: m, ended: make(chan struct{})}
		deliver(redisq.Delivery{Queue: subscription, Raw: m.Data, Handle: h})
		select { // the library counts a message as outstanding until here
		case <-h.ended:
		case <-b.ctx.Done():
		}
	})
	if err != nil {
		return fmt.Errorf("subscription %s: %w", subscription, err)
	}
	return nil
}

// Read makes the envelope of a delivery; errors are those of async.Parse. The retry count is that of earlier deliveries, which the server
// counts only under a dead-letter policy (AP-TRN-09).
func Read(d redisq.Delivery) (async.Envelope, error) {
	h, ok := d.Handle.(*message)
	if !ok {
		return async.Envelope{}, fmt.Errorf("%w: it is no Pub/Sub message", async.ErrUnreadable)
	}
	e := async.Envelope{Kind: async.KindPubSub}
	if h.m.DeliveryAttempt != nil {
		e.Internal.RetryCount = max(0, *h.m.DeliveryAttempt-1)
	}
	err := e.SetRequest(h.m.Data)
	if len(h.m.Attributes) > 0 && !errors.Is(err, async.ErrUnreadable) {
		metadata := maps.Clone(e.Request.Metadata)
		if metadata == nil {
			metadata = map[string]string{}
		}
		maps.Copy(metadata, h.m.Attributes)
		e.Request.Metadata = metadata
	}
	return e, err
}

// Published is when the producer published a delivery.
func Published(d redisq.Delivery) time.Time {
	if h, ok := d.Handle.(*message); ok {
		return h.m.PublishTime
	}
	return time.Time{}
}

// Pull has no meaning here: messages come by themselves.
func (b *Broker) Pull(context.Context, string, int, int) ([]redisq.Delivery, error) { return nil, nil }

// MoveDue has no meaning here: the subscription has the retries.
func (b *Broker) MoveDue(context.Context, float64, redisq.Home) (int, error) { return 0, nil }

// Apply ends deliveries. Results are published side by side and awaited; a message whose result was not taken is not acknowledged.
// Unreadable ones are given back, so that the subscription's dead-letter policy gets them.
func (b *Broker) Apply(ctx context.Context, ops []redisq.Op) []redisq.Outcome {
	out := make([]redisq.Outcome, len(ops))
	waits := make([]*pubsub.PublishResult, len(ops))
	for i := range ops {
		if ops[i].Kind == redisq.Finish {
			waits[i] = b.topic(ops[i].To).Publish(ctx, &pubsub.Message{Data: ops[i].Result})
		}
	}
	for i := range ops {
		h, ok := ops[i].Delivery.Handle.(*message)
		if !ok {
			continue // somebody else's: not ours to end
		}
		out[i].Done = true
		if waits[i] == nil {
			h.once.Do(func() { h.m.Nack(); close(h.ended) })
			continue
		}
		if _, err := waits[i].Get(ctx); err != nil {
			out[i] = redisq.Outcome{Err: fmt.Errorf("topic %s: %w", ops[i].To, err)}
			continue
		}
		h.once.Do(func() { h.m.Ack(); close(h.ended) })
	}
	return out
}

// topic is the one publisher of a topic.
func (b *Broker) topic(id string) *pubsub.Publisher {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[id]
	if t == nil {
		t = b.client.Publisher(id)
		t.PublishSettings.DelayThreshold = time.Millisecond // results are awaited; a longer collection would hold every one of them up
		b.topics[id] = t
	}
	return t
}

// Ping asks for a subscription, to see whether the server is there.
func (b *Broker) Ping(ctx context.Context, subscription string) error {
	name := fmt.Sprintf("projects/%s/subscriptions/%s", b.client.Project(), subscription)
	if _, err := b.client.SubscriptionAdminClient.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: name}); err != nil {
		return fmt.Errorf("subscription %s: %w", subscription, err)
	}
	return nil
}
