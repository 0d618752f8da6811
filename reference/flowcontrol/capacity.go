package flowcontrol

// fits tests the queue limits in the contract's order: global bytes, global requests, band bytes, band requests. A limit may be
// filled exactly (FC-CAP-10). The test comes before dispatch, also on an idle pool (FC-CAP-11). Counters hold live entries only,
// so that whatever ends frees its place at once.
func (c *Controller) fits(b *band, bytes int64) bool {
	return within(c.bytes, bytes, c.cfg.MaxBytes) &&
		within(c.requests, 1, c.cfg.MaxRequests) &&
		within(b.bytes, bytes, b.cfg.MaxBytes) &&
		within(b.requests, 1, b.cfg.MaxRequests)
}

// within avoids the sum, which could overflow for an absurd size.
func within(current, more, limit int64) bool {
	return limit == 0 || more <= limit-current
}

// count adds an entry to the queue's sizes, or takes it away with n = -1.
func (c *Controller) count(e *Entry, n int64) {
	c.requests += n
	c.bytes += n * e.Request.Bytes
	e.band.requests += n
	e.band.bytes += n * e.Request.Bytes
	e.band.paid = min(e.band.paid, e.band.requests)
}
