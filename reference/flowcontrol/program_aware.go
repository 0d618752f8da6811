package flowcontrol

import (
	"math"
	"time"
)

// attained is least attained service: the state of program-aware fairness in one band (FC-FAIR-11).
//
//	service(flow)  grows by prompt + 2*completion tokens at Finish and halves every HalfLife
//	score(flow)    WeightService*(1-norm(service)) + WeightHeadWait*norm(wait of its head)
//	norm           min-max over the contenders, the flows with queued work; 0.5 if all are equal
//
// The highest score wins, ties go to the head that arrived first. A pick looks at every contender, since both norms move with any of
// them: it costs O(contenders), two scans of a dense table (3 to 5 ns a flow), against O(1) for the other policies.
//
// Nothing is decayed in a pick. All services fade by one factor, which min-max does not see, so they are kept in units that grow as
// fast as services fade: what is attained at t counts 2^(t/HalfLife). The unit starts anew every epoch of 512 half-lives, before
// the numbers leave the range of a float.
type attained struct {
	cfg        ProgramAwareConfig
	contenders []contender
	epoch      int64
	gone       flows            // collected flows whose service is not forgotten yet, longest idle first
	goneByID   map[string]*flow // the same
}

// contender is a flow with queued work.
type contender struct {
	service float64 // of the flow, in units of the band's epoch
	entered time.Duration
	seq     uint64 // of its head
	flow    *flow
}

const (
	epochHalfLives = 512
	// Services that differ by less than one millionth are equal, scores by less than a hundred-millionth: a choice must not hang on
	// how a product was rounded.
	equalServices = 1e-6
	equalScores   = 1e-8
)

// pick is the contender with the highest score. Terms that are the same for all contenders are left out of the scores.
func (a *attained) pick() *flow {
	c0 := &a.contenders[0]
	low, high, first, last := c0.service, c0.service, c0.entered, c0.entered
	for i := range a.contenders {
		c := &a.contenders[i]
		low, high = min(low, c.service), max(high, c.service)
		first, last = min(first, c.entered), max(last, c.entered)
	}
	perService, perWait := 0.0, 0.0
	if high-low > high*equalServices {
		perService = a.cfg.WeightService / (high - low)
	}
	if last > first {
		perWait = a.cfg.WeightHeadWait / float64(last-first)
	}
	tie := equalScores * (a.cfg.WeightService + a.cfg.WeightHeadWait)
	best, top := c0, math.Inf(-1)
	for i := range a.contenders {
		c := &a.contenders[i]
		// The conversions keep a compiler from fusing products into the difference: decisions are equal on all machines.
		score := float64(perWait*float64(last-c.entered)) - float64(perService*(c.service-low))
		if score > top+tie || score >= top-tie && c.seq < best.seq {
			best, top = c, score
		}
	}
	return best.flow
}

// enter makes a flow that got its first entry a contender; update notes that its head may have changed; leave ends it.
func (a *attained) enter(f *flow, o Ordering) {
	f.rescale(a.epoch)
	a.contenders = append(a.contenders, contender{service: f.service, flow: f})
	f.place = len(a.contenders)
	a.update(f, o)
}

func (a *attained) update(f *flow, o Ordering) {
	c, head := &a.contenders[f.place-1], f.queue.head(o)
	c.entered, c.seq = head.entered, head.seq
}

func (a *attained) leave(f *flow) {
	last := len(a.contenders) - 1
	a.contenders[f.place-1] = a.contenders[last]
	a.contenders[f.place-1].flow.place = f.place
	a.contenders[last] = contender{}
	a.contenders = a.contenders[:last]
	f.place = 0
}

// serve adds what a request of the flow has consumed.
func (a *attained) serve(now time.Duration, f *flow, u Usage) {
	tokens := float64(max(u.Prompt, 0)) + 2*float64(max(u.Completion, 0))
	epoch, unit := a.unit(now)
	if epoch > a.epoch {
		a.epoch = epoch
		for i := range a.contenders {
			c := &a.contenders[i]
			c.flow.rescale(epoch)
			c.service = c.flow.service
		}
	}
	f.rescale(a.epoch)
	f.service += float64(tokens * unit)
	if f.place > 0 {
		a.contenders[f.place-1].service = f.service
	}
}

// unit is what a token attained now counts, and the epoch in whose units that is.
func (a *attained) unit(now time.Duration) (epoch int64, unit float64) {
	half := a.cfg.HalfLife
	if half <= 0 {
		return 0, 1
	}
	whole := int64(now / half)
	return whole / epochHalfLives, math.Ldexp(root(float64(now%half)/float64(half)), int(whole%epochHalfLives))
}

// rescale expresses the flow's service in the units of a later epoch.
func (f *flow) rescale(epoch int64) {
	if f.epoch != epoch {
		f.service = math.Ldexp(f.service, -epochHalfLives*int(min(epoch-f.epoch, 8)))
		f.epoch = epoch
	}
}

// root is 2^x for x in [0,1), as a product of square roots of 2: these are rounded alike on all machines, math.Exp2 is not.
func root(x float64) float64 {
	p := 1.0
	for i := 0; x > 0 && i < len(roots); i++ {
		if x *= 2; x >= 1 {
			x--
			p *= roots[i]
		}
	}
	return p
}

var roots = func() (r [52]float64) {
	v := 2.0
	for i := range r {
		v = math.Sqrt(v)
		r[i] = v
	}
	return r
}()

// forgotten tells whether an idle flow's service has had its time.
func (a *attained) forgotten(f *flow, now time.Duration) bool {
	return a.cfg.IdleTTL > 0 && later(f.idleSince, a.cfg.IdleTTL) <= now
}

// forget clears the service of a flow that comes back too late.
func (a *attained) forget(f *flow, now time.Duration) {
	if a.forgotten(f, now) {
		f.service = 0
	}
}

// remember keeps a collected flow for the sake of its service, which may outlive its queue.
func (b *band) remember(f *flow, now time.Duration) {
	if b.cfg.Fairness != ProgramAware || f.service == 0 || b.forgotten(f, now) {
		return
	}
	if b.goneByID == nil {
		b.goneByID = make(map[string]*flow)
	}
	b.gone.push(f)
	b.goneByID[f.id] = f
}

// remembered takes a collected flow back, or is nil.
func (b *band) remembered(id string, now time.Duration) *flow {
	f := b.goneByID[id]
	if f != nil {
		b.gone.remove(f)
		delete(b.goneByID, id)
		b.forget(f, now)
	}
	return f
}

// expire drops collected flows whose service is forgotten.
func (b *band) expire(now time.Duration) {
	for f := b.gone.head; f != nil && b.forgotten(f, now); f = b.gone.head {
		b.gone.remove(f)
		delete(b.goneByID, f.id)
	}
}

func (b *band) nextExpiry() (time.Duration, bool) {
	if b.gone.head == nil || b.attained.cfg.IdleTTL <= 0 {
		return 0, false
	}
	return later(b.gone.head.idleSince, b.attained.cfg.IdleTTL), true
}
