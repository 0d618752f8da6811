package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
)

// Builder writes a scenario down in the set-up words of the catalogue (plug, queue, step, cap=k).
type Builder struct {
	Profile profile.Profile
	Config  sut.Configuration
	Seed    uint64 // of the run, for loads

	name     string
	steps    []sut.Step
	async    []sut.AsyncStep
	checks   []checks.Spec
	capacity int
	plugs    int
}

func newBuilder(name string, p profile.Profile, seed uint64) *Builder {
	return &Builder{name: name, Profile: p, Seed: seed}
}

// Queued is the mark of the step at whose end the queue is complete.
const Queued = "queued"

// Cap configures "cap=k×n": n endpoints whose responses are held, capacity k each, static ceiling 1.0, TTL 60 s. Where the contract
// knows no concurrency detector, model servers publish the number of held requests as waiting depth against a threshold of k.
func (b *Builder) Cap(k, n int) {
	for i := range n {
		b.Config.Endpoints = append(b.Config.Endpoints, sut.Endpoint{Name: EndpointName(i)})
	}
	b.Config.TTL = time.Minute
	b.Config.Hold = true
	b.capacity = k * n
	if b.Profile.Config.ConcurrencyDetector {
		b.Config.Detector = sut.Detector{Kind: "concurrency", MaxConcurrency: k}
		return
	}
	b.Config.Detector = sut.Detector{Kind: "utilization", QueueDepth: k, KVUtil: 0.8, Staleness: 5 * time.Second}
	b.Config.HeldAsWaiting = true
}

// Util configures "util(q, kv)": n endpoints that publish scripted values and answer at once.
func (b *Builder) Util(q int, kv float64, n int) {
	for i := range n {
		b.Config.Endpoints = append(b.Config.Endpoints, sut.Endpoint{Name: EndpointName(i)})
	}
	b.Config.TTL = time.Minute
	b.Config.Detector = sut.Detector{Kind: "utilization", QueueDepth: q, KVUtil: kv, Staleness: 2 * time.Second}
}

// EndpointName is the name of the i-th model server: a, b, c ...
func EndpointName(i int) string { return string(rune('a' + i)) }

// Bands configures one band per priority with the given policies ("" leaves the default) and an objective for each.
func (b *Builder) Bands(fairness, ordering string, priorities ...int) {
	for _, p := range priorities {
		b.Config.Bands = append(b.Config.Bands, sut.Band{Priority: p, Fairness: fairness, Ordering: ordering})
		b.Objective(Objective(p), p)
	}
}

// Objective declares an InferenceObjective.
func (b *Builder) Objective(name string, priority int) {
	if b.Config.Objectives == nil {
		b.Config.Objectives = map[string]int{}
	}
	b.Config.Objectives[name] = priority
}

// Objective is the name the scenarios give to the objective of a priority: p100, p0, m10.
func Objective(priority int) string {
	if priority < 0 {
		return fmt.Sprintf("m%d", -priority)
	}
	return fmt.Sprintf("p%d", priority)
}

// Option changes one request.
type Option func(*sut.Request)

// Req is one request. An id such as a3 puts it into the flow named by its letters unless Tenant says otherwise.
func (b *Builder) Req(id string, opts ...Option) sut.Request {
	r := sut.Request{ID: id}
	for _, o := range opts {
		o(&r)
	}
	if r.Tenant == "" {
		r.Tenant = strings.TrimRight(id, "0123456789")
	}
	if r.Tenant == noTenant {
		r.Tenant = ""
	}
	if r.Extra == nil {
		r.Extra = map[string]string{}
	}
	b.header(&r, b.Profile.Headers.Objective, r.Objective)
	b.header(&r, b.Profile.Headers.Fairness, r.Tenant)
	return r
}

// header adds the documented name unless the request brings one of the names itself.
func (b *Builder) header(r *sut.Request, names []string, value string) {
	if value == "" {
		return
	}
	for _, n := range names {
		if _, own := r.Extra[n]; own {
			return
		}
	}
	r.Extra[names[0]] = value
}

const noTenant = "-"

// At gives the request the objective of a priority.
func At(priority int) Option { return func(r *sut.Request) { r.Objective = Objective(priority) } }

// Named gives the request an objective by name.
func Named(objective string) Option { return func(r *sut.Request) { r.Objective = objective } }

// Tenant puts the request into a flow.
func Tenant(t string) Option { return func(r *sut.Request) { r.Tenant = t } }

// Anonymous leaves the fairness header out.
func Anonymous() Option { return Tenant(noTenant) }

// Header adds a request header as it is, also an empty one.
func Header(name, value string) Option {
	return func(r *sut.Request) {
		if r.Extra == nil {
			r.Extra = map[string]string{}
		}
		r.Extra[name] = value
	}
}

// Size pads the body to a number of bytes.
func Size(n int) Option { return func(r *sut.Request) { r.Size = n } }

// Prompt gives the default body a prompt of n tokens.
func Prompt(n int) Option { return func(r *sut.Request) { r.Prompt = n } }

// Empty sends no body at all.
func Empty(r *sut.Request) { r.NoBody = true }

// Body sets the body.
func Body(s string) Option { return func(r *sut.Request) { r.Body = s } }

// To restricts the request to endpoints.
func To(endpoints ...string) Option { return func(r *sut.Request) { r.Subset = endpoints } }

// StreamHeldAfter makes it a stream that is held after n tokens.
func StreamHeldAfter(n int) Option {
	return func(r *sut.Request) { r.Stream, r.HoldAfter, r.MaxTokens = true, n, n+8 }
}

// Step appends a step as it is.
func (b *Builder) Step(s sut.Step) {
	if s.Spacing == 0 {
		s.Spacing = b.Profile.Config.Spacing
	}
	b.steps = append(b.steps, s)
}

// Do appends an operation that needs no more than a mark.
func (b *Builder) Do(op sut.Op, mark string) { b.Step(sut.Step{Op: op, Mark: mark}) }

// Plug fills the configured capacity with spaced requests that are held, and gives their ids.
func (b *Builder) Plug(opts ...Option) []string {
	ids := b.PlugN(b.capacity, opts...)
	return ids
}

// PlugN sends n such requests.
func (b *Builder) PlugN(n int, opts ...Option) []string {
	var reqs []sut.Request
	var ids []string
	for range n {
		b.plugs++
		r := b.Req(fmt.Sprintf("plug%d", b.plugs), opts...)
		reqs = append(reqs, r)
		ids = append(ids, r.ID)
	}
	b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: reqs})
	return ids
}

// Queue sends requests spaced, one after the other, each behind the barrier "shown as queued".
func (b *Builder) Queue(reqs ...sut.Request) []string {
	b.Step(sut.Step{Op: sut.OpQueue, Mark: "queueing", Requests: reqs})
	return ids(reqs)
}

// Send sends requests spaced, without a barrier.
func (b *Builder) Send(mark string, reqs ...sut.Request) []string {
	b.Step(sut.Step{Op: sut.OpSend, Mark: mark, Requests: reqs})
	return ids(reqs)
}

func ids(reqs []sut.Request) []string {
	var out []string
	for _, r := range reqs {
		out = append(out, r.ID)
	}
	return out
}

// Quiet watches for d; its end is the instant "nothing happened until here".
func (b *Builder) Quiet(mark string, d time.Duration) {
	b.Step(sut.Step{Op: sut.OpQuiet, Mark: mark, Quiet: d})
}

// Complete closes the queue: what was queued must now be pending and unseen for 300 ms.
func (b *Builder) Complete() { b.Quiet(Queued, 300*time.Millisecond) }

// Steps releases n held requests one by one, each followed by the next arrival.
func (b *Builder) Steps(n int) { b.Step(sut.Step{Op: sut.OpStep, Mark: "step", Count: n}) }

// Check adds a check for a requirement.
func (b *Builder) Check(requirement, name string, s checks.Spec) {
	s.Requirement, s.Check = requirement, name
	b.checks = append(b.checks, s)
}

// Order expects the groups to arrive one after the other; everything in them was queued before the first release.
func (b *Builder) Order(requirement string, groups ...[]string) {
	b.Check(requirement, "order", checks.Spec{Groups: groups, Mark: Queued})
}

// One makes groups of one id each.
func One(ids ...string) [][]string {
	var out [][]string
	for _, id := range ids {
		out = append(out, []string{id})
	}
	return out
}

// Drain releases everything until all requests have ended.
func (b *Builder) Drain() { b.Do(sut.OpDrain, "drained") }

// FullCapacity ends a scenario with the probe of INV-04: as many fresh requests as the limit run in parallel and one more waits.
func (b *Builder) FullCapacity() {
	b.Drain()
	var reqs []sut.Request
	for i := range b.capacity {
		reqs = append(reqs, b.Req(fmt.Sprintf("cap%d", i+1), Tenant("probe")))
	}
	b.Step(sut.Step{Op: sut.OpPlug, Mark: "capacity-filled", Requests: reqs})
	extra := b.Req("beyond1", Tenant("probe"))
	b.Step(sut.Step{Op: sut.OpQueue, Mark: "capacity-over", Requests: []sut.Request{extra}})
	b.Quiet("capacity", 300*time.Millisecond)
	b.Step(sut.Step{Op: sut.OpDrain, Mark: "capacity-drained"})
	b.Check("INV-04", "in-flight", checks.Spec{Mark: "capacity", Count: b.capacity, Waiting: []string{extra.ID}})
}

// Has tells whether a profile knows an optional ability.
func (b *Builder) Has(f sut.Feature) bool { return slices.Contains(b.Profile.Features, string(f)) }

// PassHold lets a request be answered at once by a model server that holds the others.
func PassHold(r *sut.Request) { r.PassHold = true }

// Endings waits until the requests have ended at the client.
func (b *Builder) Endings(mark string, ids ...string) {
	b.Step(sut.Step{Op: sut.OpEndings, Mark: mark, IDs: ids})
}

// Completed expects the requests to complete with 200.
func (b *Builder) Completed(requirement string, ids ...string) {
	b.Check(requirement, "completed", checks.Spec{IDs: ids})
}

// Ceiling sets a static threshold. The capacity probe of a capacity scenario follows it.
func (b *Builder) Ceiling(threshold float64) {
	b.Config.Ceiling = sut.Ceiling{Kind: "static", Threshold: threshold}
	b.capacity = int(float64(b.capacity)*threshold + 0.5)
}

// Holdback spreads ceilings from hi for the highest band to lo for the lowest.
func (b *Builder) Holdback(lo, hi float64) {
	b.Config.Ceiling = sut.Ceiling{Kind: "holdback", Min: lo, Max: hi}
}

// Capacity is the number of requests that may run at once.
func (b *Builder) Capacity() int { return b.capacity }

// SetCapacity corrects it where a ceiling lets the probe's band use less than the nominal capacity.
func (b *Builder) SetCapacity(n int) { b.capacity = n }
