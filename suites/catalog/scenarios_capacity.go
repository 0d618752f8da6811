package catalog

import (
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// atOnce is how soon a capacity refusal must be there, before the profile's slack is added.
const atOnce = 250 * time.Millisecond

// clockGrain is how much earlier than its limit an expiry may be seen: clocks of client and router are read at different places.
const clockGrain = 10 * time.Millisecond

// capacityRefusal expects an immediate refusal with the profile's capacity answer while waiting are pending.
func capacityRefusal(b *scenario.Builder, requirement string, ids, waiting []string) {
	a := b.Profile.Refusals.Capacity
	b.Check(requirement, "refused", checks.Spec{IDs: ids, Waiting: waiting, Count: 1, Status: a.Status, Reason: a.Reason, Max: atOnce + b.Profile.Tolerances.Slack + b.Profile.Tolerances.Slack})
}

// sendOver sends a request that must be refused and waits for its end.
func sendOver(b *scenario.Builder, reqs ...sut.Request) []string {
	ids := b.Send("over", reqs...)
	b.Endings("over-ended", ids...)
	return ids
}

var capacityScenarios = []scenario.Scenario{
	{
		Name: "cap-requests", Title: "A band of three holds exactly three", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 3}}
			b.Plug()
			w := b.Queue(run(b, "a", 3)...)
			b.Complete()
			over := sendOver(b, b.Req("over1"))
			b.Check("FC-CAP-01", "waiting", checks.Spec{IDs: w, Mark: scenario.Queued, Count: 1})
			capacityRefusal(b, "FC-CAP-01", over, w)
			capacityRefusal(b, "FC-REF-02", over, w)
			b.FullCapacity()
		},
	},
	{
		Name: "cap-bytes", Title: "A band's byte limit bounds its queued data", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			if b.Profile.Config.Detector == "inline" {
				// The chapter sets the band's capacity under flowControl.maxBytes (K5); with one band in use both readings agree.
				b.Config.MaxBytes = 1000
			} else {
				b.Config.Bands = []sut.Band{{Priority: 0, MaxBytes: 1000}}
			}
			b.Plug(scenario.Size(300))
			w := b.Queue(run(b, "a", 3, scenario.Size(300))...)
			b.Quiet("three", 100*time.Millisecond)
			b.Check("FC-CAP-02", "waiting", checks.Spec{IDs: w, Mark: "three", Count: 1})
			over := sendOver(b, b.Req("over1", scenario.Size(300)))
			fits := b.Queue(b.Req("fits", scenario.Size(90)))
			b.Complete()
			capacityRefusal(b, "FC-CAP-02", over, w)
			b.Check("FC-CAP-02", "waiting", checks.Spec{IDs: fits, Mark: scenario.Queued, Count: 1})
			b.FullCapacity()
		},
	},
	fullBand("cap-per-band", "A full low band refuses nothing of higher priority", -10, 100),
	fullBand("cap-per-band-high", "A full high band refuses nothing of lower priority", 100, -10),
	{
		Name: "cap-global-requests", Title: "A global request limit bounds the sum over all bands", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 0)
			b.Config.MaxRequests = 3
			b.Plug()
			w := b.Queue(b.Req("a1", scenario.At(100)), b.Req("a2", scenario.At(100)), b.Req("b1"))
			b.Quiet("three", 100*time.Millisecond)
			b.Check("FC-CAP-04", "waiting", checks.Spec{IDs: w, Mark: "three", Count: 1})
			over := sendOver(b, b.Req("over1", scenario.At(100)), b.Req("over2"))
			capacityRefusal(b, "FC-CAP-04", over, w)
			b.FullCapacity()
		},
	},
	{
		Name: "cap-global-bytes", Title: "A global byte limit bounds queued data over all bands", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 0)
			b.Config.MaxBytes = 1000
			at := scenario.At(100)
			if b.Profile.Config.Detector == "inline" {
				at = scenario.At(0) // with one band in use both readings of the chapter agree (K5)
			}
			b.Plug(scenario.Size(200))
			w := b.Queue(b.Req("a1", at, scenario.Size(600)), b.Req("b1", scenario.Size(300)))
			b.Quiet("two", 100*time.Millisecond)
			b.Check("FC-CAP-05", "waiting", checks.Spec{IDs: w, Mark: "two", Count: 1})
			over := sendOver(b, b.Req("over1", at, scenario.Size(300)))
			fits := b.Queue(b.Req("fits", scenario.Size(90)))
			b.Complete()
			capacityRefusal(b, "FC-CAP-05", over, w)
			b.Check("FC-CAP-05", "waiting", checks.Spec{IDs: fits, Mark: scenario.Queued, Count: 1})
			b.FullCapacity()
		},
	},
	{
		Name: "cap-only-waiting", Title: "Only waiting requests count against a limit", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 1}}
			b.Plug()
			first := b.Queue(b.Req("a1"))
			b.Quiet("one-and-one", 300*time.Millisecond)
			b.Check("FC-CAP-09", "waiting", checks.Spec{IDs: first, Mark: "one-and-one", Count: 1})
			b.Steps(1)
			again := b.Queue(b.Req("a2"))
			b.Complete()
			b.Check("FC-CAP-09", "waiting", checks.Spec{IDs: again, Mark: scenario.Queued, Count: 1})
			b.FullCapacity()
		},
	},
	{
		Name: "cap-exactly-full", Title: "A byte limit may be filled exactly; one byte more is refused", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			if b.Profile.Config.Detector == "inline" {
				b.Config.MaxBytes = 1000
			} else {
				b.Config.Bands = []sut.Band{{Priority: 0, MaxBytes: 1000}}
			}
			b.Plug(scenario.Size(300))
			over := sendOver(b, b.Req("over1", scenario.Size(1001)))
			full := b.Queue(b.Req("full1", scenario.Size(1000)))
			b.Complete()
			b.Check("FC-CAP-10", "waiting", checks.Spec{IDs: full, Mark: scenario.Queued, Count: 1})
			capacityRefusal(b, "FC-CAP-10", over, nil)
			b.FullCapacity()
		},
	},
	{
		Name: "cap-before-dispatch", Title: "A body above the band's limit is refused on an idle pool", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxBytes: 1000}}
			before := b.Send("before", b.Req("small1", scenario.Size(300), scenario.PassHold))
			b.Endings("before-ended", before...)
			over := sendOver(b, b.Req("big1", scenario.Size(3000)))
			after := b.Send("after", b.Req("small2", scenario.Size(300), scenario.PassHold))
			b.Endings("after-ended", after...)
			a := b.Profile.Refusals.Capacity
			b.Check("FC-CAP-11", "refused", checks.Spec{IDs: over, Status: a.Status, Reason: a.Reason, Max: atOnce + b.Profile.Tolerances.Slack + b.Profile.Tolerances.Slack})
			b.Completed("FC-CAP-11", "small1", "small2")
			b.FullCapacity()
		},
	},
	{
		Name: "cap-no-displacement", Title: "A capacity refusal displaces nothing, whatever the priorities", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, -10)
			size := func(*sut.Request) {}
			if b.Profile.Config.Detector == "inline" { // this contract documents no global request limit (FC-CAP-04), but one of bytes
				b.Config.MaxBytes, size = 2000, scenario.Size(1000)
			} else {
				b.Config.MaxRequests = 2
			}
			b.Plug()
			low := b.Queue(b.Req("low1", scenario.At(-10), size), b.Req("low2", scenario.At(-10), size))
			over := sendOver(b, b.Req("high1", scenario.At(100), size))
			b.Drain()
			capacityRefusal(b, "FC-CAP-12", over, low)
			b.Completed("FC-CAP-12", low...)
			b.FullCapacity()
		},
	},
	{
		Name: "ttl-expiry", Title: "The wait limit refuses, not before it is over and without reaching a model server", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.TTL = waitLimit(b)
			b.Plug()
			// Sent without the barrier of a queue gauge: a request that ends no sooner than the limit and is never seen at a model server
			// has been pending until then.
			w := b.Send("waiters", run(b, "a", 3)...)
			b.Step(sut.Step{Op: sut.OpEndings, Mark: "expired", IDs: w})
			b.Drain()
			latest := b.Config.TTL + b.Profile.Tolerances.TTLLate + b.Profile.Tolerances.Slack
			b.Check("FC-TTL-01", "refused", checks.Spec{IDs: w, Mode: "any", Count: 1, Min: b.Config.TTL - clockGrain, Max: latest})
			a := b.Profile.Refusals.TTL
			b.Check("FC-REF-03", "refused", checks.Spec{IDs: w, Count: 1, Status: a.Status, Reason: a.Reason})
			b.FullCapacity()
		},
	},
	{
		Name: "ttl-only-waiting", Title: "A dispatched request may run longer than the wait limit", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.TTL = waitLimit(b)
			plug := b.Plug()
			b.Quiet("running", b.Config.TTL+1500*time.Millisecond)
			b.Drain()
			b.Check("FC-TTL-03", "completed", checks.Spec{IDs: plug, Min: b.Config.TTL + time.Second})
			b.FullCapacity()
		},
	},
	{
		Name: "ttl-empty-pool", Title: "Waiting too long for an empty pool", Needs: []sut.Feature{sut.ScaleToZero},
		Write: func(b *scenario.Builder) {
			emptyPool(b)
			w := b.Send("sent", b.Req("a1"))
			b.Endings("expired", w...)
			a := b.Profile.Refusals.TTLEmptyPool
			b.Check("FC-REF-04", "refused", checks.Spec{IDs: w, Status: a.Status, Reason: a.Reason, Min: time.Second - clockGrain,
				Max: time.Second + b.Profile.Tolerances.TTLLate + b.Profile.Tolerances.Slack})
		},
	},
	{
		Name: "cap-empty-pool", Title: "A queue limit reached on an empty pool", Needs: []sut.Feature{sut.ScaleToZero},
		Write: func(b *scenario.Builder) {
			emptyPool(b)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 1}}
			w := b.Queue(b.Req("a1"))
			over := sendOver(b, b.Req("over1"))
			b.Endings("expired", w...)
			a := b.Profile.Refusals.CapacityEmptyPool
			b.Check("FC-REF-05", "refused", checks.Spec{IDs: over, Waiting: w, Status: a.Status, Reason: a.Reason, Max: atOnce + b.Profile.Tolerances.Slack + b.Profile.Tolerances.Slack})
		},
	},
	{
		Name: "empty-pool-waits", Title: "An endpoint that appears in time serves what waited for an empty pool", Needs: []sut.Feature{sut.ScaleToZero},
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			b.Config.Endpoints[0].Out = true
			b.Config.Hold = false
			w := b.Send("sent", b.Req("a1"))
			b.Quiet("waiting", 3*time.Second)
			b.Step(sut.Step{Op: sut.OpAdd, Mark: "appeared", Endpoint: "a"})
			b.Endings("served", w...)
			b.Check("INV-20", "arrives", checks.Spec{IDs: w, After: "appeared", Within: time.Second})
			b.Completed("INV-20", w...)
		},
	},
	{
		Name: "ttl-either", Title: "Around its expiry a request is served or refused, never both", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.TTL = waitLimit(b)
			b.Plug()
			n := int((b.Config.TTL + 1500*time.Millisecond) / (60 * time.Millisecond)) // releases go on past the latest expiry
			reqs := run(b, "a", n)
			b.Step(sut.Step{Op: sut.OpSend, Mark: "sent", Requests: reqs, Spacing: time.Millisecond})
			b.Step(sut.Step{Op: sut.OpStep, Mark: "around", Count: n, Quiet: 60 * time.Millisecond})
			b.Drain()
			b.Check("FC-TTL-05", "either", checks.Spec{IDs: ids(reqs), Min: b.Config.TTL - clockGrain})
			b.FullCapacity()
		},
	},
	{
		Name: "ttl-none", Title: "A wait limit of 0 leaves the wait to the client", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.TTL, b.Config.NoTTL = 0, true
			b.Plug()
			w := b.Queue(run(b, "a", 2)...)
			b.Complete()
			b.Quiet("long", 5*time.Second)
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: w[:1]})
			b.Endings("gone", w[:1]...)
			b.Steps(1)
			b.Drain()
			b.Check("FC-TTL-04", "waiting", checks.Spec{IDs: w, Mark: "long", Count: 1})
			b.Check("FC-TTL-04", "never-served", checks.Spec{IDs: w[:1], Then: w[1:], Mark: scenario.Queued})
			b.FullCapacity()
		},
	},
	{
		Name: "ref-pool-state", Title: "429 where the pool is contended, 503 where it is empty", Needs: []sut.Feature{sut.Hold, sut.ScaleToZero},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.TTL = waitLimit(b)
			b.Plug()
			full := b.Send("contended", b.Req("full1"))
			b.Endings("expired", full...)
			b.Drain()
			b.Step(sut.Step{Op: sut.OpRemove, Mark: "emptied", Endpoint: "a"})
			b.Quiet("emptied-known", 500*time.Millisecond)
			none := b.Send("empty", b.Req("none1"))
			b.Endings("expired", none...)
			b.Check("FC-REF-09", "refused", checks.Spec{IDs: full, Count: 1, Status: 429, Reason: b.Profile.Refusals.TTL.Reason, Min: b.Config.TTL - clockGrain})
			b.Check("FC-REF-09", "refused", checks.Spec{IDs: none, Status: 503, Reason: b.Profile.Refusals.TTLEmptyPool.Reason, Min: b.Config.TTL - clockGrain})
		},
	},
	{
		Name: "cap-batch", Title: "A flooded batch band refuses at its limit while interactive work is unaffected", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			b.Config.Bands = []sut.Band{{Priority: 100}, {Priority: -10, MaxRequests: 5}}
			b.Objective("p100", 100)
			b.Objective("m10", -10)
			b.Plug()
			var batch, over []sut.Request
			for i := range 5 {
				batch = append(batch, b.Req(fmt.Sprintf("batch%d", i+1), scenario.At(-10)))
			}
			for i := range 45 {
				over = append(over, b.Req(fmt.Sprintf("flood%d", i+1), scenario.At(-10), scenario.Tenant("batch")))
			}
			w := b.Queue(batch...)
			shed := sendOver(b, over...)
			hi := b.Queue(b.Req("live1", scenario.At(100)), b.Req("live2", scenario.At(100)))
			b.Complete()
			b.Check("FC-CAP-15", "waiting", checks.Spec{IDs: append(hi, w...), Mark: scenario.Queued, Count: 2})
			b.Steps(7)
			a := b.Profile.Refusals.Capacity
			b.Check("FC-CAP-15", "refused", checks.Spec{IDs: shed, Waiting: w, Count: 2, Status: a.Status, Reason: a.Reason, Max: atOnce + b.Profile.Tolerances.Slack + b.Profile.Tolerances.Slack})
			b.Order("FC-CAP-15", append(scenario.One(hi...), w)...)
			b.FullCapacity()
		},
	},
}

// fullBand fills the band of one priority, beside which that of another one has room.
func fullBand(name, title string, full, other int) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: banded, Write: func(b *scenario.Builder) {
		b.Cap(1, 1)
		b.Config.Bands = []sut.Band{{Priority: 100, MaxRequests: 2}, {Priority: -10, MaxRequests: 2}}
		b.Objective("p100", 100)
		b.Objective("m10", -10)
		called := map[int]string{100: "high", -10: "low"}
		req := func(n, priority int) sut.Request {
			return b.Req(fmt.Sprint(called[priority], n), scenario.At(priority))
		}
		b.Plug()
		w := b.Queue(req(1, full), req(2, full))
		over := sendOver(b, req(3, full))
		room := b.Queue(req(1, other), req(2, other))
		b.Complete()
		b.Check("FC-CAP-03", "waiting", checks.Spec{IDs: append(room, w...), Mark: scenario.Queued, Count: 1})
		b.Steps(4)
		capacityRefusal(b, "FC-CAP-03", over, w)
		b.Order("FC-CAP-03", scenario.One("high1", "high2", "low1", "low2")...)
		b.FullCapacity()
	}}
}

// waitLimit is 1 s; where submissions are 300 ms apart three of them need more room.
func waitLimit(b *scenario.Builder) time.Duration {
	if b.Profile.Config.Spacing > 100*time.Millisecond {
		return 3 * time.Second
	}
	return time.Second
}

// emptyPool configures a pool whose only endpoint is not there, with a wait limit of 1 s.
func emptyPool(b *scenario.Builder) {
	b.Cap(1, 1)
	b.Config.Endpoints[0].Out = true
	b.Config.TTL = time.Second
}
