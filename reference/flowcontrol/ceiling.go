package flowcontrol

// ceilings sets the saturation up to which each band may dispatch. Every provisioned band counts, idle ones and band 0 included
// (FC-CEIL-10), so they change only when a band is made or collected.
//
//	static           c_i = threshold
//	holdback, rank   c_i = max - i*(max-min)/(N-1), i from the highest band down
//	holdback, value  c_i = min + (p_i-p_min)/(p_max-p_min)*(max-min)
//	soft-reflective  set in every pass (reflect)
//
// One band alone gets max. The ends are set, not computed: a rounded end would move the plateau by a whole request.
func (c *Controller) ceilings() {
	cfg, n := c.cfg.Ceiling, len(c.bands)
	for i, b := range c.bands {
		switch {
		case cfg.Kind == SoftReflective:
		case cfg.Kind == Static:
			b.ceiling = cfg.Threshold
		case i == 0:
			b.ceiling = cfg.Max
		case i == n-1:
			b.ceiling = cfg.Min
		case cfg.ByValue:
			high, low := float64(c.bands[0].cfg.Priority), float64(c.bands[n-1].cfg.Priority)
			part := (float64(b.cfg.Priority) - low) / (high - low)
			// The conversion keeps a compiler from fusing the product into the sum: decisions are equal on all machines.
			b.ceiling = cfg.Min + float64(part*(cfg.Max-cfg.Min))
		default:
			b.ceiling = cfg.Max - float64(i)*(cfg.Max-cfg.Min)/float64(n-1)
		}
	}
}
