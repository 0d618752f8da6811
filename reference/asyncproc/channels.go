package asyncproc

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/redisq"
)

const (
	// pushLimit bounds the messages of all channels inside the process; beyond it the client's buffer fills, and then the broker's.
	pushLimit = 10000
	// channelRetryInterval is how often due retries are looked for.
	channelRetryInterval = time.Second
	// channelBuffer is the client's, in messages.
	channelBuffer = 1000
)

// listen takes what comes on the channels until the drain begins. The client subscribes again after a lost connection (AP-TRN-15); what
// is published meanwhile is lost, as the transport has it (AP-TRN-06).
func (s *Server) listenChannels(names []string) {
	sub := s.redis.Subscribe(s.d.ctx, names...)
	defer func() { _ = sub.Close() }() // nothing can be done about it
	words := sub.Channel(redis.WithChannelSize(channelBuffer))
	for {
		select {
		case m, ok := <-words:
			if !ok {
				return
			}
			s.deliver(redisq.Delivery{Queue: m.Channel, Raw: []byte(m.Payload)})
		case <-s.drain.Done():
			return
		case <-s.d.ctx.Done():
			return
		}
	}
}

// deliver gives one message to its queue, waiting for room.
func (s *Server) deliver(delivery redisq.Delivery) {
	q := s.byName[delivery.Queue]
	if q == nil {
		return
	}
	select {
	case s.d.slots <- struct{}{}:
	case <-s.d.ctx.Done():
		return
	}
	e := event{ev: async.Event{Kind: async.Pulled, Queue: q.key}}
	s.d.receive(&e, q, []redisq.Delivery{delivery})
	s.d.post(e)
}

// takeDue gives the retries that are due back to their queues.
func (s *Server) takeDue(ctx context.Context, c *redisq.Channels) {
	for s.drain.Err() == nil {
		due, err := c.TakeDue(ctx, float64(s.d.epoch+int64(s.o.Clock.Now()))/1e9, func(queue string) bool { return s.byName[queue] != nil })
		if err != nil {
			s.o.Logger.Warn("retries", "error", err)
		}
		for _, delivery := range due {
			s.deliver(delivery)
		}
		if err != nil || len(due) == 0 {
			return
		}
	}
}
