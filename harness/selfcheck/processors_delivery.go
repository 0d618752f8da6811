package selfcheck

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/asyncproc"
	"github.com/llm-weir/weir/reference/redisq"
)

// deliveryMutants are faults of what must not be lost and not be doubled.
var deliveryMutants = []Mutant{
	{Name: "pop-before-claim", Fault: "what is pulled exists in the process only", Class: "ALOSS", Meant: []string{"AP-DRAIN-05"}, Except: []string{"llm-d-async-0.9"},
		Processor: flags(func(f *asyncconfig.Flags) { f.Durability = string(asyncconfig.AtMostOnce) })},
	{Name: "ack-before-publish", Fault: "a claim ends before its result is published", Class: "ALOSS", Meant: []string{"AP-DRAIN-05", "AP-DRAIN-04"}, Except: []string{"llm-d-async-0.9"},
		Processor: results(func(ctx context.Context, c *redis.Client, f *finish) {
			list, result := f.list(), f.result()
			f.to("held-back:" + list)
			f.after = func() {
				clock.Sleep(ctx, 300*time.Millisecond)
				c.LPush(context.WithoutCancel(ctx), list, result)
			}
		})},
	{Name: "no-fencing", Fault: "whoever has lost its lease publishes all the same", Class: "ALOSS", Meant: []string{"AP-DRAIN-06"},
		Processor: results(func(ctx context.Context, c *redis.Client, f *finish) {
			f.refused = func() { c.LPush(ctx, f.list(), f.result()) }
		})},
	{Name: "result-twice", Fault: "each result is pushed twice", Class: "ALOSS", Meant: []string{"AP-RES-01", "AP-TRN-01"},
		Processor: results(func(ctx context.Context, c *redis.Client, f *finish) {
			f.after = func() { c.LPush(ctx, f.list(), f.result()) }
		})},
	{Name: "expired-unrouted", Fault: "results of expired messages go to the general list", Class: "AROUTE", Meant: []string{"AP-CFG-14"}, Except: []string{"llm-d-async-0.9"},
		Processor: results(func(_ context.Context, _ *redis.Client, f *finish) {
			if strings.Contains(f.result(), "DEADLINE_EXCEEDED") {
				f.to("results")
			}
		})},
	{Name: "ttl-on-wrong-list", Fault: "the expiry of a queue's results is put on the general list", Class: "AROUTE", Meant: []string{"AP-CFG-15"},
		Processor: results(func(ctx context.Context, c *redis.Client, f *finish) {
			if ttl := f.ttl(); ttl > 0 {
				f.noTTL()
				c.PExpire(ctx, "results", ttl)
			}
		})},
	{Name: "ack-loses", Fault: "every fifth message ends without a result", Class: "ALOSS", Meant: []string{"AP-TRN-01", "AP-RES-01", "AP-DRAIN-04"}, Processor: everyFifth()},
	{Name: "refusal-loses", Fault: "what a gate refuses is forgotten", Class: "ALOSS", Meant: []string{"AP-GATE-03", "AP-POOL-08"}, Processor: forgets(async.Release, func(o *async.Out) bool { return o.Reason != async.Drained })},
	{Name: "drain-loses", Fault: "what waits in the process at a shutdown is forgotten", Class: "ALOSS", Meant: []string{"AP-DRAIN-02", "AP-DRAIN-08"}, Processor: forgets(async.Release, func(o *async.Out) bool { return o.Reason == async.Drained })},
	{Name: "retry-loses", Fault: "retries are forgotten", Class: "ALOSS", Meant: []string{"AP-RETRY-01", "AP-RETRY-10"}, Processor: forgets(async.Retry, func(*async.Out) bool { return true })},
	{Name: "shutdown-clears-retries", Fault: "a shutdown empties the retry set", Class: "ALOSS", Meant: []string{"AP-RETRY-10"}, Processor: func(o *asyncproc.Options) {
		c, retry := o.Config.Redis.URL, o.Config.Redis.RetryQueue
		hears(func(ev *async.Event) bool {
			if client, err := redisq.NewClient(c); ev.Kind == async.Drain && err == nil {
				client.Del(context.Background(), retry)
			}
			return true
		})(o)
	}},
	{Name: "no-drain", Fault: "requests in flight are cut off at once", Class: "ALOSS", Meant: []string{"AP-DRAIN-01"}, Processor: hears(func(ev *async.Event) bool {
		if ev.Kind == async.Drain {
			ev.Kind = async.Abandon
		}
		return true
	})},
	{Name: "drain-timeout-ignored", Fault: "a shutdown waits as long as it takes", Class: "ALOSS", Meant: []string{"AP-DRAIN-02", "AP-CLI-10"}, Processor: flags(func(f *asyncconfig.Flags) { f.DrainTimeout = time.Hour })},
	{Name: "drain-goes-on", Fault: "after the signal messages are still sent", Class: "ALOSS", Meant: []string{"AP-DRAIN-03"}, Processor: hears(func(ev *async.Event) bool { return ev.Kind != async.Drain })},
	{Name: "parked-hold-up", Fault: "parked workers use the whole drain timeout", Class: "ALOSS", Meant: []string{"AP-DRAIN-08"}, Except: []string{"llm-d-async-0.9"},
		Processor: func(o *asyncproc.Options) {
			flags(func(f *asyncconfig.Flags) { f.DrainTimeout *= 2 })(o)
			hears(func(ev *async.Event) bool { return ev.Kind != async.Drain })(o)
		}},
}

// forgets lets the machine's word stand, and the broker's copy vanish: the message is kept aside as if nobody could read it.
func forgets(kind async.OutKind, which func(*async.Out) bool) Tampering {
	return decides(func(_ time.Duration, o *async.Out) bool {
		if o.Kind == kind && which(o) {
			o.Kind = async.DeadLetter
		}
		return true
	})
}

func everyFifth() Tampering {
	n := 0
	return decides(func(_ time.Duration, o *async.Out) bool {
		if o.Kind == async.Finish {
			if n++; n%5 == 0 {
				o.Kind = async.DeadLetter
			}
		}
		return true
	})
}

// finish is the script that ends a message with its result, as it is about to be sent: keys and arguments of redisq.Leased.
type finish struct {
	args    []any
	keys    int
	after   func() // it was carried out
	refused func() // it was not: the lease was lost
}

func (f *finish) list() string   { s, _ := f.args[3+5].(string); return s }
func (f *finish) to(list string) { f.args[3+5] = list }
func (f *finish) result() string {
	switch v := f.args[3+f.keys+2].(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

func (f *finish) ttl() time.Duration {
	switch v := f.args[3+f.keys+3].(type) {
	case int64:
		return time.Duration(v) * time.Millisecond
	case int:
		return time.Duration(v) * time.Millisecond
	}
	return 0
}

func (f *finish) noTTL() { f.args[3+f.keys+3] = 0 }

// results changes how results are published, through the client's hooks.
func results(change func(ctx context.Context, c *redis.Client, f *finish)) Tampering {
	return func(o *asyncproc.Options) {
		url := o.Config.Redis.URL
		if o.Config.Transport != asyncconfig.RedisSortedSet {
			return
		}
		o.Redis = func() *redis.Client {
			c, err := redisq.NewClient(url)
			if err != nil {
				panic(err) // the configuration was checked
			}
			plain, err := redisq.NewClient(url)
			if err != nil {
				panic(err)
			}
			c.AddHook(&finishHook{plain: plain, change: change})
			return c
		}
	}
}

type finishHook struct {
	plain  *redis.Client
	change func(ctx context.Context, c *redis.Client, f *finish)
}

// DialHook implements redis.Hook.
func (h *finishHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h *finishHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		done := h.before(ctx, cmd)
		err := next(ctx, cmd)
		done()
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h *finishHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var after []func()
		for _, c := range cmds {
			after = append(after, h.before(ctx, c))
		}
		err := next(ctx, cmds)
		for _, f := range after {
			f()
		}
		return err
	}
}

// before looks whether a command is the script in question; the returned function is called after it.
func (h *finishHook) before(ctx context.Context, cmd redis.Cmder) func() {
	args := cmd.Args()
	nothing := func() {}
	name, _ := args[0].(string)
	if len(args) < 12 || !strings.HasPrefix(strings.ToLower(name), "eval") {
		return nothing
	}
	keys, ok := args[2].(int)
	if !ok || keys < 6 || len(args) < 3+keys+5 {
		return nothing
	}
	f := &finish{args: args, keys: keys}
	if !strings.HasPrefix(f.result(), `{"id":`) {
		return nothing
	}
	h.change(ctx, h.plain, f)
	return func() {
		r, ok := cmd.(*redis.Cmd)
		if !ok || cmd.Err() != nil {
			return
		}
		switch n, _ := r.Int64(); {
		case n == 1 && f.after != nil:
			go f.after()
		case n == 0 && f.refused != nil:
			f.refused()
		}
	}
}
