package redisq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/reference/async"
)

// WakeSuffix ends the name of the channel on which producers say that they have submitted something.
const WakeSuffix = ":wake"

// WakeChannel is a queue's channel of that kind.
func WakeChannel(queue string) string { return queue + WakeSuffix }

// cancelTTL is how long a cancel mark stays (spec/async-processor.md §1.1).
const cancelTTL = 7 * 24 * time.Hour

// Submit puts a request into a sorted-set queue and gives its generation's token, with which it can be cancelled. now is the wall time;
// the deadline must lie after it. A cancel mark of an earlier generation is removed.
func Submit(ctx context.Context, c *redis.Client, queue, resultQueue string, r async.Request, now time.Time) (string, error) {
	if r.ID == "" {
		return "", errors.New("request: an id is required")
	}
	if r.Deadline <= now.Unix() {
		return "", fmt.Errorf("request %q: its deadline %d is not after now, %d", r.ID, r.Deadline, now.Unix())
	}
	t := NewToken()
	e, err := async.NewEnvelope(r, async.Internal{RequestToken: t, ResultQueueName: resultQueue})
	if err != nil {
		return "", fmt.Errorf("request %q: %w", r.ID, err)
	}
	// A Go duration ends after 292 years, and a deadline need not.
	left := min(r.Deadline-now.Unix(), math.MaxInt32)
	_, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, CancelKey(r.ID))
		p.Set(ctx, ActiveKey(r.ID), t, time.Duration(left)*time.Second)
		p.Do(ctx, "ZADD", queue, unix(Score(r.Deadline, now)), e.Encode())
		p.Publish(ctx, WakeChannel(queue), "")
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("submit to %q: %w", queue, err)
	}
	return t, nil
}

// scoreSpan is how many milliseconds of submissions share one second of deadline in order: as many as a float's fraction beside
// today's seconds can tell apart.
const scoreSpan = 1 << 22

// Score orders by deadline, and inside one deadline second by submission (AP-TRN-04). The order inside a second starts anew every 70
// minutes.
func Score(deadline int64, now time.Time) float64 {
	return float64(deadline) + float64(now.UnixMilli()%scoreSpan)/scoreSpan
}

// Cancel marks a request's generation as withdrawn.
func Cancel(ctx context.Context, c *redis.Client, id, token string) error {
	if err := c.Set(ctx, CancelKey(id), token, cancelTTL).Err(); err != nil {
		return fmt.Errorf("cancel of %q: %w", id, err)
	}
	return nil
}

// Receive takes the oldest result of a list, waiting up to wait for one; nil if there was none. Waits below a second are a second.
func Receive(ctx context.Context, c *redis.Client, list string, wait time.Duration) ([]byte, error) {
	v, err := c.BRPop(ctx, max(wait, time.Second), list).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("results of %q: %w", list, err)
	}
	return []byte(v[1]), nil
}
