package flowcontrol

import (
	"slices"
	"time"
)

// collect forgets flows that have been idle for FlowIdle and bands that have been idle and unwanted for BandIdle. Whatever has
// queued or in-flight work holds a lease and stays (FC-GC-02); static and wanted bands stay (FC-GC-04).
func (c *Controller) collect(now time.Duration) {
	before := len(c.bands)
	c.bands = slices.DeleteFunc(c.bands, func(b *band) bool {
		at, ok := b.collectable(c.cfg.BandIdle)
		return ok && at <= now
	})
	if len(c.bands) != before {
		c.ceilings()
	}
	if c.cfg.FlowIdle <= 0 {
		return
	}
	for _, b := range c.bands {
		b.expire(now)
		for f := b.idle.head; f != nil && later(f.idleSince, c.cfg.FlowIdle) <= now; f = b.idle.head {
			b.idle.remove(f)
			delete(b.byID, f.id)
			b.remember(f, now)
		}
	}
}

// collectable is when the band is to be collected; false if never as things are.
func (b *band) collectable(idle time.Duration) (time.Duration, bool) {
	if idle <= 0 || b.static || b.wanted || b.lease > 0 {
		return 0, false
	}
	return later(b.idleSince, idle), true
}

// nextCollection is when collect has something to do; false if never as things are.
func (c *Controller) nextCollection() (at time.Duration, ok bool) {
	if c.cfg.FlowIdle <= 0 && c.cfg.BandIdle <= 0 {
		return 0, false
	}
	for _, b := range c.bands {
		if t, due := b.collectable(c.cfg.BandIdle); due && (!ok || t < at) {
			at, ok = t, true
		}
		if f := b.idle.head; f != nil && c.cfg.FlowIdle > 0 {
			if t := later(f.idleSince, c.cfg.FlowIdle); !ok || t < at {
				at, ok = t, true
			}
		}
		if t, due := b.nextExpiry(); due && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}
