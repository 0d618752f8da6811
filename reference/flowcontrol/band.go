package flowcontrol

import (
	"slices"
	"time"
)

// band is one priority level: its flows, what waits in it and the saturation up to which it may dispatch.
type band struct {
	cfg      BandConfig
	static   bool // configured, or band 0: never collected
	wanted   bool // an accepted objective has this priority
	requests int64
	bytes    int64
	lease    int // entries queued or in flight
	// idleSince is when the band last became free of leases or unwanted, whichever came later.
	idleSince time.Duration
	ceiling   float64

	byID     map[string]*flow
	queue    queue // under GlobalStrict: all entries of the band
	rotation flows // under RoundRobin: the flows with queued work, next turn first
	attained       // under ProgramAware
	idle     flows // flows without a lease, longest idle first

	paid int64 // queued requests for which a victim was stopped; never more than requests
}

// BandState is what a driver shows of a band.
type BandState struct {
	Priority    int
	Requests    int64 // queued
	Bytes       int64 // queued
	MaxRequests int64 // 0: no limit
	MaxBytes    int64 // 0: no limit
	Ceiling     float64
	Flows       int // known, idle ones included
}

// Bands appends the provisioned bands to dst, highest first.
func (c *Controller) Bands(dst []BandState) []BandState {
	for _, b := range c.bands {
		dst = append(dst, BandState{
			Priority: b.cfg.Priority, Requests: b.requests, Bytes: b.bytes,
			MaxRequests: b.cfg.MaxRequests, MaxBytes: b.cfg.MaxBytes, Ceiling: b.ceiling, Flows: len(b.byID),
		})
	}
	return dst
}

// HasFlow tells whether the band keeps state of the flow; false once the idle flow was collected (FC-GC-03).
func (c *Controller) HasFlow(priority int, fairnessID string) bool {
	b := c.find(priority)
	return b != nil && b.byID[fairnessID] != nil
}

// position is where the band of that priority is or would be; bands are ordered from the highest down.
func (c *Controller) position(priority int) (int, bool) {
	return slices.BinarySearchFunc(c.bands, priority, func(b *band, p int) int {
		switch {
		case b.cfg.Priority > p:
			return -1
		case b.cfg.Priority < p:
			return 1
		}
		return 0
	})
}

func (c *Controller) find(priority int) *band {
	if i, ok := c.position(priority); ok {
		return c.bands[i]
	}
	return nil
}

// route is the band for a priority: its own or, where none is provisioned, band 0 (spec/endpoint-picker.md §2.5).
func (c *Controller) route(priority int) *band {
	if b := c.find(priority); b != nil {
		return b
	}
	return c.zero
}

// provision makes a band from a configured entry or a template.
func (c *Controller) provision(cfg BandConfig, static bool) *band {
	b := &band{cfg: cfg, static: static, ceiling: 1, byID: make(map[string]*flow)}
	b.attained.cfg = c.cfg.ProgramAware
	i, _ := c.position(cfg.Priority)
	c.bands = slices.Insert(c.bands, i, b)
	c.ceilings()
	return b
}

// SetPriorities says which priorities the accepted objectives have. Missing bands are made from the templates (FC-PRI-08,
// FC-PRI-10, FC-PRI-11); what is queued stays in the band it has (FC-PRI-09).
func (c *Controller) SetPriorities(now time.Duration, priorities []int) {
	for _, b := range c.bands {
		wanted := slices.Contains(priorities, b.cfg.Priority)
		if b.wanted && !wanted {
			b.idleSince = now
		}
		b.wanted = wanted
	}
	for _, p := range priorities {
		if c.find(p) != nil {
			continue
		}
		cfg := c.cfg.DefaultBand
		if p < 0 {
			cfg = c.cfg.DefaultNegativeBand
		}
		cfg.Priority = p
		c.provision(cfg, false).wanted = true
	}
}

// hold takes a lease on the flow for one entry, making the flow on its first request (FC-GC-01).
func (b *band) hold(id string, now time.Duration) *flow {
	f := b.byID[id]
	switch {
	case f == nil:
		if f = b.remembered(id, now); f == nil {
			f = &flow{id: id, band: b}
		}
		b.byID[id] = f
	case f.lease == 0:
		b.idle.remove(f)
		b.forget(f, now)
	}
	f.lease++
	b.lease++
	return f
}

// unhold gives one lease back; what becomes idle by that waits for collection.
func (b *band) unhold(f *flow, now time.Duration) {
	f.lease--
	if f.lease == 0 {
		f.idleSince = now
		b.idle.push(f)
	}
	b.lease--
	if b.lease == 0 {
		b.idleSince = now
	}
}
