package catalog

import (
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

var restartable = []sut.Feature{sut.Hold, sut.Restart}

var endingScenarios = []scenario.Scenario{
	{
		Name: "can-queued", Title: "A client that leaves the queue is never dispatched and holds up nobody", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			b.Queue(b.Req("x", scenario.Tenant("a")), b.Req("y", scenario.Tenant("a")))
			b.Complete()
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: []string{"x"}})
			b.Endings("gone", "x")
			b.Steps(1)
			b.Quiet("after", 300*time.Millisecond)
			b.Drain()
			b.Check("FC-CAN-01", "never-served", checks.Spec{IDs: []string{"x"}, Then: []string{"y"}, Mark: scenario.Queued})
			b.Check("FC-CAN-01", "arrives", checks.Spec{IDs: []string{"y"}, After: "step", Within: time.Second})
			b.FullCapacity()
		},
	},
	leaving("can-frees-queue", "Clients that leave free the queue's capacity", 0),
	leaving("can-frees-behind", "Clients that leave free the queue's capacity behind one who stays", 1),
	{
		Name: "can-dispatched", Title: "A client that leaves after dispatch is aborted at the model server, streaming or not", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: []sut.Request{b.Req("whole"), b.Req("stream", scenario.StreamHeldAfter(2))}})
			b.Quiet("both-running", 300*time.Millisecond)
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: []string{"whole", "stream"}})
			b.Endings("gone", "whole", "stream")
			b.Quiet("noticed", 500*time.Millisecond)
			b.Check("FC-CAN-03", "aborted", checks.Spec{IDs: []string{"whole", "stream"}, Streamed: []string{"stream"}, Within: 2 * time.Second})
			b.FullCapacity()
		},
	},
	{
		Name: "can-frees-capacity", Title: "Dispatched clients that leave free capacity for queued work", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			plug := b.Plug()
			w := b.Queue(b.Req("w1"), b.Req("w2"))
			b.Complete()
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: plug})
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: w, Limit: 2 * time.Second})
			b.Check("FC-CAN-04", "arrives", checks.Spec{IDs: w, After: "left", Within: 2 * time.Second})
			b.FullCapacity()
		},
	},
	{
		Name: "can-one-of-three", Title: "Cancelling one call of a tenant leaves its others alone", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			b.Queue(run(b, "a", 3)...)
			b.Complete()
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: []string{"a2"}})
			b.Endings("gone", "a2")
			b.Steps(2)
			b.Drain()
			b.Check("FC-CAN-07", "never-served", checks.Spec{IDs: []string{"a2"}, Then: []string{"a1", "a3"}, Mark: scenario.Queued})
			b.Completed("FC-CAN-07", "a1", "a3")
			b.FullCapacity()
		},
	},
	{
		Name: "ref-two-reasons", Title: "A full queue and an expired wait are named differently", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 2}}
			b.Config.TTL = waitLimit(b)
			b.Plug()
			w := b.Queue(b.Req("ttl1"), b.Req("ttl2"))
			over := sendOver(b, b.Req("over1"))
			b.Endings("expired", w...)
			b.Quiet("cleanup", 1500*time.Millisecond)
			b.Check("FC-REF-01", "reasons", checks.Spec{Groups: [][]string{over, w}, Reasons: b.Profile.Reasons})
			b.FullCapacity()
		},
	},
	{
		Name: "ref-outcomes", Title: "Waiting, capacity, expiry and cancellation are separate outcomes", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 2}}
			b.Config.TTL = waitLimit(b)
			b.Plug()
			w := b.Send("waiters", b.Req("gone1", scenario.Tenant("a")), b.Req("served1", scenario.Tenant("a")))
			b.Quiet(scenario.Queued, 100*time.Millisecond)
			over := sendOver(b, b.Req("over1"))
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: w[:1]})
			b.Endings("gone", w[:1]...)
			b.Steps(1)
			b.Quiet("cleanup", 1500*time.Millisecond) // a cancelled entry may hold its place until the sweep
			late := b.Send("late", b.Req("ttl1"))
			b.Endings("expired", late...)
			b.Drain()
			c, t := b.Profile.Refusals.Capacity, b.Profile.Refusals.TTL
			b.Check("FC-REF-07", "refused", checks.Spec{IDs: over, Waiting: w, Count: 1, Status: c.Status, Reason: c.Reason})
			b.Check("FC-REF-07", "refused", checks.Spec{IDs: late, Count: 1, Status: t.Status, Reason: t.Reason, Min: b.Config.TTL - clockGrain})
			b.Check("FC-REF-07", "never-served", checks.Spec{IDs: w[:1], Then: w[1:], Mark: scenario.Queued})
			b.Completed("FC-REF-07", w[1:]...)
			b.FullCapacity()
		},
	},
	{
		Name: "ref-reasons", Title: "Every refusal names its cause, and different causes have different names", Needs: restartable,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 2}}
			b.Config.TTL = waitLimit(b)
			b.Plug()
			w := b.Queue(b.Req("ttl1"), b.Req("ttl2"))
			over := sendOver(b, b.Req("over1"))
			b.Endings("expired", w...)
			b.Quiet("cleanup", 1500*time.Millisecond) // an expired entry may hold its place until the sweep (FC-TTL-06)
			last := b.Queue(b.Req("shut1"))
			b.Do(sut.OpShutdown, "shutdown")
			b.Endings("shut", last...)
			b.Drain()
			b.Check("FC-REF-01", "reasons", checks.Spec{Groups: [][]string{over, w, last}, Reasons: b.Profile.Reasons})
		},
	},
	{
		Name: "ref-upstream", Title: "Error answers of model servers are passed on unchanged", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			for _, status := range []int{400, 404, 429, 500, 503} {
				b.Step(sut.Step{Op: sut.OpFail, Mark: "failing", Count: status})
				id := b.Send("sent", b.Req(fmt.Sprintf("up%d", status), scenario.Tenant("a")))
				b.Endings("ended", id...)
				b.Check("FC-REF-17", "upstream-error", checks.Spec{IDs: id, Status: status})
			}
			b.Step(sut.Step{Op: sut.OpFail, Mark: "healed"})
			b.FullCapacity()
		},
	},
	{
		Name: "shut-queued", Title: "A graceful shutdown answers every waiting request", Needs: restartable,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			w := b.Queue(run(b, "a", 5)...)
			b.Complete()
			b.Do(sut.OpShutdown, "shutdown")
			b.Endings("answered", w...)
			b.Drain()
			a := b.Profile.Refusals.Shutdown
			b.Check("FC-SHUT-01", "refused", checks.Spec{IDs: w, After: "shutdown", Status: a.Status, Reason: a.Reason, Max: 2 * time.Second})
		},
	},
	{
		Name: "shut-many", Title: "No queued request ends without an outcome at shutdown", Needs: restartable,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			var reqs []sut.Request
			for f := range 10 {
				reqs = append(reqs, run(b, string(rune('a'+f)), 5)...)
			}
			// They need no order among themselves.
			w := ids(reqs)
			b.Step(sut.Step{Op: sut.OpSend, Mark: "sent", Requests: reqs, Spacing: time.Millisecond})
			b.Complete()
			b.Do(sut.OpShutdown, "shutdown")
			b.Endings("answered", w...)
			b.Drain()
			b.Check("FC-SHUT-06", "refused", checks.Spec{IDs: w, After: "shutdown", Mode: "any"})
		},
	},
	{
		Name: "shut-running", Title: "Streams already running at the signal finish", Needs: restartable,
		Write: func(b *scenario.Builder) {
			b.Cap(20, 1)
			running := b.Plug(scenario.StreamHeldAfter(1))
			b.Do(sut.OpShutdown, "shutdown")
			b.Quiet("draining", 500*time.Millisecond)
			b.Drain()
			b.Check("FC-SHUT-03", "completed", checks.Spec{IDs: running, Min: 400 * time.Millisecond})
		},
	},
}

func ids(reqs []sut.Request) []string {
	var out []string
	for _, r := range reqs {
		out = append(out, r.ID)
	}
	return out
}

// leaving fills a queue of five, from which all but the first ones leave; as many find room.
func leaving(name, title string, stay int) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: held, Write: func(b *scenario.Builder) {
		b.Cap(1, 1)
		b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 5}}
		b.Plug()
		w := b.Queue(run(b, "a", 5)...)
		over := sendOver(b, b.Req("over1"))
		b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: w[stay:]})
		b.Endings("gone", w[stay:]...)
		b.Quiet("cleanup", 3*time.Second)
		again := b.Queue(run(b, "again", 5-stay)...)
		b.Complete()
		capacityRefusal(b, "FC-CAN-02", over, w)
		b.Check("FC-CAN-02", "waiting", checks.Spec{IDs: append(again, w[:stay]...), Mark: scenario.Queued, Count: 1})
		b.FullCapacity()
	}}
}
