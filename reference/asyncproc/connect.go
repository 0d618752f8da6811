package asyncproc

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/extra/redisotel/v9"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/pubsubq"
	"github.com/llm-weir/weir/reference/redisq"
)

// connect makes the broker that the configuration names, and what goes with it; nothing is asked of it yet.
func (s *Server) connect(d *driver) error {
	c := s.o.Config
	d.parse = func(delivery redisq.Delivery) (async.Envelope, error) { return async.Parse(delivery.Raw) }
	if c.Transport == asyncconfig.GCPPubSub {
		return s.connectPubSub(d)
	}
	var err error
	if s.o.Redis != nil {
		s.redis = s.o.Redis()
	} else if s.redis, err = redisq.NewClient(c.Redis.URL); err != nil {
		return err
	}
	if c.Redis.Tracing && s.o.Tracing != nil { // per command (AP-OTEL-07)
		if err := redisotel.InstrumentTracing(s.redis, redisotel.WithTracerProvider(s.o.Tracing)); err != nil {
			return fmt.Errorf("enable_tracing: %w", err)
		}
	}
	s.ping = func(ctx context.Context) error { return s.redis.Ping(ctx).Err() }
	s.hangUp = s.redis.Close
	d.results = c.Redis.ResultQueue
	d.size = func(ctx context.Context, queue string) (int64, error) { return s.redis.ZCard(ctx, queue).Result() }
	switch {
	case c.Transport == asyncconfig.RedisPubSub:
		d.broker = &redisq.Channels{Client: s.redis, Retry: c.Redis.RetryQueue}
		return nil
	case c.Flags.Durability == string(asyncconfig.AtMostOnce):
		d.broker = &redisq.Destructive{Client: s.redis, Retry: c.Redis.RetryQueue}
	default:
		d.broker = &redisq.Leased{Client: s.redis, Lease: c.Redis.ClaimLease, Retry: c.Redis.RetryQueue}
	}
	d.marked = func(ctx context.Context, ids, tokens []string) ([]bool, error) {
		return redisq.Marked(ctx, s.redis, ids, tokens)
	}
	return nil
}

func (s *Server) connectPubSub(d *driver) error {
	c := s.o.Config
	b, err := pubsubq.New(d.ctx, c.PubSub.Project)
	if err != nil {
		return err
	}
	var names []string
	for _, q := range c.Queues {
		names = append(names, q.Name)
	}
	s.ping = func(ctx context.Context) error {
		var errs []error
		for _, n := range names {
			errs = append(errs, b.Ping(ctx, n))
		}
		return errors.Join(errs...)
	}
	s.hangUp = b.Close
	s.subs = newSubscriptions(b, names, s.deliver)
	d.broker, d.parse, d.published, d.results = b, pubsubq.Read, pubsubq.Published, c.PubSub.ResultTopic
	d.flow = s.subs.set
	d.metrics.withLatency()
	return nil
}
