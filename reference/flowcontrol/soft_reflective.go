package flowcontrol

import (
	"math"
	"time"
)

// alternation is the state of the soft-reflective ceilings (spec/endpoint-picker.md §3.5, FC-CEIL-11):
//
//	c_0 = 1; for band i of N, with saturation s and r_i = 1 - i*s/(N-1):
//	s < r_i   1
//	s >= 1    0
//	else      1 if tick mod P is 0, else 0, for all such bands alike; P = max(1, round(s/(1-s+1e-9)))
//
// The tick is incremented once per call in which s is in [0.5,1), the only range in which a band can reach r_i. Routers call once per
// dispatch cycle, at least every millisecond. This machine does not poll: a call is one pass (Next) with queued work, so a tick is a
// dispatched request, or an event, that met the regime. Since nothing but another pass can open a band that was held back by the
// alternation alone, such a pass asks for the next one a millisecond later; an extra Tick of the driver is a pass as well.
type alternation struct {
	tick  int64
	again time.Duration // when the next pass is due
	held  bool          // the last pass ended at a band that the alternation holds back
}

// cycle is the time between two passes while the alternation holds work back, that of a router's dispatch loop.
const cycle = time.Millisecond

// reflect sets the ceilings for one pass.
func (c *Controller) reflect(s float64) {
	n := len(c.bands)
	lower := 1.0
	if n > 1 && s >= 1-s && s < 1 {
		c.alternation.tick++
		if period := int64(max(1, math.Round(s/(1-s+1e-9)))); c.alternation.tick%period != 0 {
			lower = 0
		}
	} else if s >= 1 {
		lower = 0
	}
	for i, b := range c.bands {
		b.ceiling = 1
		if i > 0 && s >= 1-float64(float64(i)*s)/float64(n-1) {
			b.ceiling = lower
		}
	}
}

// holdBack notes that a pass ended at the gate with work queued.
func (c *Controller) holdBack(now time.Duration, s float64) {
	if c.cfg.Ceiling.Kind == SoftReflective && s < 1 {
		c.alternation.held, c.alternation.again = true, later(now, cycle)
	}
}
