package redisq

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Quota is the right of one value of an attribute to Limit messages: at once, or in a Window.
type Quota struct {
	Key         string
	Concurrency bool
	Limit       int64
	Window      time.Duration
}

// A concurrency quota is a number at Key, as other processors keep it, and beside it the leases of the holders that this
// implementation knows. The number alone cannot be right: with an expiry it vanishes under long requests, without one a killed
// process holds its slots for ever (spec/async-processor.md §4.1, AP-QUOTA-10). An expired lease is taken off the number by the next
// acquisition, and a release counts only for a holder that is still there, so that no slot is given back twice (AP-QUOTA-12).
// A rate limit is the log of admissions within the window, by the server's clock.
var (
	scriptAcquire = redis.NewScript(`
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local lease = tonumber(ARGV[3])
local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)
local count = tonumber(redis.call('GET', KEYS[1]) or '0')
if #gone > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  count = math.max(0, count - #gone)
  redis.call('SET', KEYS[1], count, 'PX', lease)
end
if count >= tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], count + 1, 'PX', lease)
redis.call('ZADD', KEYS[2], now + lease, ARGV[1])
redis.call('PEXPIRE', KEYS[2], lease)
return 1`)

	scriptFree = redis.NewScript(`
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
local count = tonumber(redis.call('GET', KEYS[1]) or '0')
if count > 1 then redis.call('SET', KEYS[1], count - 1, 'PX', ARGV[2]) else redis.call('DEL', KEYS[1]) end
return 1`)

	scriptHold = redis.NewScript(`
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
for i = 2, #ARGV do
  if redis.call('ZSCORE', KEYS[2], ARGV[i]) then redis.call('ZADD', KEYS[2], now + tonumber(ARGV[1]), ARGV[i]) end
end
redis.call('PEXPIRE', KEYS[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1`)

	scriptAdmit = redis.NewScript(`
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[3]))
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(2 * tonumber(ARGV[3]) / 1000))
return 1`)
)

func (q Quota) keys() []string { return []string{q.Key, q.Key + ":holders"} }

// leaseMin keeps a lease longer than a few heartbeats, whatever the window.
const leaseMin = 10 * time.Second

// LeaseOf is how long a holder of a concurrency quota counts without a Hold.
func (q Quota) LeaseOf() time.Duration { return max(q.Window, leaseMin) }

// Take takes one for a holder, whose name must be new. False: the quota is exhausted, and nothing was taken.
func Take(ctx context.Context, c *redis.Client, q Quota, holder string) (bool, error) {
	var n int
	var err error
	if q.Concurrency {
		n, err = scriptAcquire.Run(ctx, c, q.keys(), holder, q.Limit, q.LeaseOf().Milliseconds()).Int()
	} else {
		n, err = scriptAdmit.Run(ctx, c, q.keys()[:1], holder, q.Limit, q.Window.Microseconds()).Int()
	}
	if err != nil {
		return false, fmt.Errorf("quota %s: %w", q.Key, err)
	}
	return n == 1, nil
}

// GiveBack ends what Take gave. Doing it again does nothing.
func GiveBack(ctx context.Context, c *redis.Client, q Quota, holder string) error {
	var err error
	if q.Concurrency {
		err = scriptFree.Run(ctx, c, q.keys(), holder, q.LeaseOf().Milliseconds()).Err()
	} else {
		err = c.ZRem(ctx, q.Key, holder).Err()
	}
	if err != nil {
		return fmt.Errorf("quota %s: %w", q.Key, err)
	}
	return nil
}

// Hold extends the leases of holders of one concurrency quota.
func Hold(ctx context.Context, c *redis.Client, q Quota, holders []string) error {
	args := []any{q.LeaseOf().Milliseconds()}
	for _, h := range holders {
		args = append(args, h)
	}
	if err := scriptHold.Run(ctx, c, q.keys(), args...).Err(); err != nil {
		return fmt.Errorf("quota %s: %w", q.Key, err)
	}
	return nil
}
