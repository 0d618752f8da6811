package redisq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Leased is the sorted-set transport that loses nothing.
type Leased struct {
	Client *redis.Client
	Lease  time.Duration
	Retry  string // retry set
}

// graceAfterDeadline bounds a lease: nobody works on a message for long after its deadline.
const graceAfterDeadline = 300 // s

// claimKeys are those of a queue's claims: member, owner, lease's end and score by claim, in this order after the queue itself.
func claimKeys(queue string) []string {
	return []string{queue, queue + ":claimed", queue + ":claim-owners", queue + ":claims-idx", queue + ":claim-scores"}
}

// The scripts keep to one queue's keys each. Times are the server's, so that no processor's clock matters.
var (
	// number reads a score; the Lua of some servers does not know exponents.
	number = `
local function number(s)
  local m, e = string.match(s, '^(.-)[eE]%+?(%-?%d+)$')
  if m then return tonumber(m) * 10 ^ tonumber(e) end
  return tonumber(s)
end
`
	scriptPull = redis.NewScript(number + `
local t = redis.call('TIME')
local now = tonumber(t[1]) + tonumber(t[2]) / 1000000
local from, want = tonumber(ARGV[1]), tonumber(ARGV[2])
local out = {}
-- A member that is claimed already is a second copy, byte for byte; it waits until the first is done.
local list = redis.call('ZRANGE', KEYS[1], from, from + want + 7)
for i = 1, #list do
  if #out >= 3 * want then break end
  local claim = redis.sha1hex(list[i])
  if redis.call('HSETNX', KEYS[2], claim, list[i]) == 1 then
    local score = redis.call('ZSCORE', KEYS[1], list[i])
    redis.call('HSET', KEYS[3], claim, ARGV[3])
    redis.call('HSET', KEYS[5], claim, score)
    redis.call('ZADD', KEYS[4], math.min(now + tonumber(ARGV[4]), math.max(now, number(score)) + tonumber(ARGV[5])), claim)
    redis.call('ZREM', KEYS[1], list[i])
    out[#out + 1] = list[i]
    out[#out + 1] = score
    out[#out + 1] = claim
  end
end
return out`)

	// unclaim is the end of every script that moves a message out of "claimed".
	unclaim = `
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('HDEL', KEYS[5], ARGV[1])
return 1`
	fence = `if redis.call('HGET', KEYS[3], ARGV[1]) ~= ARGV[2] then return 0 end`

	scriptRelease = redis.NewScript(fence + `
redis.call('ZADD', KEYS[1], redis.call('HGET', KEYS[5], ARGV[1]), redis.call('HGET', KEYS[2], ARGV[1]))` + unclaim)

	scriptRetry = redis.NewScript(fence + `
redis.call('ZADD', KEYS[6], ARGV[3], ARGV[4])` + unclaim)

	scriptFinish = redis.NewScript(fence + `
redis.call('LPUSH', KEYS[6], ARGV[3])
if tonumber(ARGV[4]) > 0 then redis.call('PEXPIRE', KEYS[6], ARGV[4]) end
if ARGV[5] ~= '' then
  for i = 7, 8 do
    if redis.call('GET', KEYS[i]) == ARGV[5] then redis.call('DEL', KEYS[i]) end
  end
end` + unclaim)

	scriptDead = redis.NewScript(fence + `
redis.call('LPUSH', KEYS[6], redis.call('HGET', KEYS[2], ARGV[1]))` + unclaim)

	scriptRenew = redis.NewScript(number + `
local t = redis.call('TIME')
local now = tonumber(t[1]) + tonumber(t[2]) / 1000000
local lost = {}
for i = 3, #ARGV, 2 do
  if redis.call('HGET', KEYS[3], ARGV[i]) == ARGV[i + 1] then
    local score = number(redis.call('HGET', KEYS[5], ARGV[i]))
    redis.call('ZADD', KEYS[4], math.min(now + tonumber(ARGV[1]), math.max(now, score) + tonumber(ARGV[2])), ARGV[i])
  else
    lost[#lost + 1] = (i - 3) / 2
  end
end
return lost`)

	scriptReclaim = redis.NewScript(`
local t = redis.call('TIME')
local now = tonumber(t[1]) + tonumber(t[2]) / 1000000
local claims = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now, 'LIMIT', 0, 100)
for _, claim in ipairs(claims) do
  local member = redis.call('HGET', KEYS[2], claim)
  if member then redis.call('ZADD', KEYS[1], redis.call('HGET', KEYS[5], claim), member) end
  redis.call('HDEL', KEYS[2], claim)
  redis.call('HDEL', KEYS[3], claim)
  redis.call('ZREM', KEYS[4], claim)
  redis.call('HDEL', KEYS[5], claim)
end
return #claims`)

	scriptMove = redis.NewScript(`
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
return 1`)

	scriptMoveDead = redis.NewScript(`
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('LPUSH', KEYS[2], ARGV[1])
return 1`)

	scripts = []*redis.Script{scriptPull, scriptRelease, scriptRetry, scriptFinish, scriptDead, scriptRenew, scriptReclaim, scriptMove, scriptMoveDead}
)

// Pull claims up to n messages, the earliest deadline first, passing over the first offset.
func (l *Leased) Pull(ctx context.Context, queue string, n, offset int) ([]Delivery, error) {
	owner := token(8)
	raw, err := scriptPull.Run(ctx, l.Client, claimKeys(queue), offset, n, owner, seconds(l.Lease), graceAfterDeadline).StringSlice()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("pull of %q: %w", queue, err)
	}
	out := make([]Delivery, 0, len(raw)/3)
	for i := 0; i+2 < len(raw); i += 3 {
		out = append(out, Delivery{Queue: queue, Raw: []byte(raw[i]), score: raw[i+1], claim: raw[i+2], owner: owner})
	}
	return out, nil
}

// Apply ends deliveries in one round trip. An Op without an error must not be repeated.
func (l *Leased) Apply(ctx context.Context, ops []Op) []Outcome {
	return run(ctx, l.Client, scripts, func(p redis.Pipeliner, i int) *redis.Cmd {
		o := &ops[i]
		d := &o.Delivery
		keys := claimKeys(d.Queue)
		switch o.Kind {
		case Retry:
			return p.EvalSha(ctx, scriptRetry.Hash(), append(keys, l.Retry), d.claim, d.owner, unix(o.Due), o.Member)
		case Finish:
			return p.EvalSha(ctx, scriptFinish.Hash(), append(keys, o.To, ActiveKey(o.ID), CancelKey(o.ID)), d.claim, d.owner, o.Result,
				o.TTL.Milliseconds(), o.Token)
		case DeadLetter:
			return p.EvalSha(ctx, scriptDead.Hash(), append(keys, DeadLetterKey(d.Queue)), d.claim, d.owner)
		}
		return p.EvalSha(ctx, scriptRelease.Hash(), keys, d.claim, d.owner)
	}, len(ops))
}

// Renew extends the leases of deliveries and gives the indexes of those that were lost.
func (l *Leased) Renew(ctx context.Context, ds []Delivery) ([]int, error) {
	byQueue := map[string][]int{}
	for i := range ds {
		byQueue[ds[i].Queue] = append(byQueue[ds[i].Queue], i)
	}
	var lost []int
	var errs []error
	for queue, all := range byQueue {
		for len(all) > 0 {
			part := all[:min(len(all), 500)] // a script's arguments are unpacked on its stack
			all = all[len(part):]
			args := []any{seconds(l.Lease), graceAfterDeadline}
			for _, i := range part {
				args = append(args, ds[i].claim, ds[i].owner)
			}
			at, err := scriptRenew.Run(ctx, l.Client, claimKeys(queue), args...).Int64Slice()
			if err != nil && !errors.Is(err, redis.Nil) {
				errs = append(errs, fmt.Errorf("leases of %q: %w", queue, err))
			}
			for _, k := range at {
				lost = append(lost, part[k])
			}
		}
	}
	return lost, errors.Join(errs...)
}

// Reclaim puts messages whose lease is over back into their queue, at most 100 a call.
func (l *Leased) Reclaim(ctx context.Context, queue string) (int, error) {
	n, err := scriptReclaim.Run(ctx, l.Client, claimKeys(queue)).Int()
	if err != nil {
		return 0, fmt.Errorf("reclaim of %q: %w", queue, err)
	}
	return n, nil
}

// Home is where a retry belongs: its queue and its score there; ok is false for a member that cannot be read.
type Home func(member string) (queue string, score float64, ok bool)

// moveLimit is the number of retries moved in one round trip.
const moveLimit = 100

// MoveDue puts the retries that are due at now (Unix seconds) back into their queues and gives their number. Unreadable ones go to the
// dead letters of the retry set.
func (l *Leased) MoveDue(ctx context.Context, now float64, home Home) (int, error) {
	return moveDue(ctx, l.Client, l.Retry, now, home)
}

func moveDue(ctx context.Context, c *redis.Client, set string, now float64, home Home) (int, error) {
	due, err := c.ZRangeArgs(ctx, redis.ZRangeArgs{Key: set, Start: "-inf", Stop: unix(now), ByScore: true, Count: moveLimit}).Result()
	if err != nil {
		return 0, fmt.Errorf("retries in %q: %w", set, err)
	}
	if len(due) == 0 {
		return 0, nil
	}
	moved := 0
	for _, o := range run(ctx, c, scripts, func(p redis.Pipeliner, i int) *redis.Cmd {
		queue, score, ok := home(due[i])
		if !ok {
			return p.EvalSha(ctx, scriptMoveDead.Hash(), []string{set, DeadLetterKey(set)}, due[i])
		}
		return p.EvalSha(ctx, scriptMove.Hash(), []string{set, queue}, due[i], unix(score))
	}, len(due)) {
		if o.Err != nil {
			return moved, fmt.Errorf("retries in %q: %w", set, o.Err)
		}
		if o.Done {
			moved++
		}
	}
	return moved, nil
}
