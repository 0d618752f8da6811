package flowcontrol

import (
	"slices"
	"time"
)

// Report is what another replica of the picker has in flight. It replaces what that replica has reported before.
type Report struct {
	Replica int           // the driver's own handle of it, never reused in a run
	At      time.Duration // when it was so
	Loads   []ForeignLoad // at endpoints that are not named it has nothing in flight
}

// ForeignLoad is what a replica has in flight at one endpoint.
type ForeignLoad struct {
	Endpoint EndpointID
	Requests int
	Tokens   int64
}

// mostForeign bounds the requests of one foreign load, so that no sum of them overflows.
const mostForeign = 1 << 30

// foreign is what the other replicas have in flight: of each its last report, for as long as that is not older than the limit. It
// counts where the concurrency detector counts, in the pool's saturation and in the headroom filter (FC-MULTI-03), and nowhere else:
// not in the picker's own accounting, and none of it can be stopped here.
type foreign struct {
	reports  []Report // by replica
	requests int      // the sum over all of them
}

// report takes a replica's report. One that is older than its last, or than the limit, is late news.
func (p *Pool) report(now time.Duration, r *Report) {
	at := min(r.At, now) // a report from the future would be kept for too long
	if p.det.Kind != Concurrency || p.det.ForeignLimit <= 0 || p.outdated(at) <= now {
		return
	}
	f := &p.foreign
	i, known := slices.BinarySearchFunc(f.reports, r.Replica, func(o Report, id int) int { return o.Replica - id })
	if !known {
		f.reports = slices.Insert(f.reports, i, Report{Replica: r.Replica, At: at})
	}
	own := &f.reports[i]
	if at < own.At {
		return
	}
	p.book(own, -1)
	own.At, own.Loads = at, own.Loads[:0]
	for _, l := range r.Loads {
		if l.Endpoint >= 0 {
			own.Loads = append(own.Loads, ForeignLoad{l.Endpoint, min(max(l.Requests, 0), mostForeign), min(max(l.Tokens, 0), mostTokens)})
		}
	}
	p.book(own, +1)
}

// book adds what a replica reported to the endpoints and sums, or takes it away.
func (p *Pool) book(r *Report, n int) {
	for _, l := range r.Loads {
		m := p.slot(l.Endpoint)
		p.tally(m, -1)
		m.foreign += n * l.Requests
		m.foreignTokens += int64(n) * l.Tokens
		p.foreign.requests += n * l.Requests
		p.tally(m, +1)
	}
}

// forget drops the reports that are too old: a replica that has died must not hold capacity for ever.
func (p *Pool) forget(now time.Duration) {
	if len(p.foreign.reports) == 0 {
		return
	}
	p.foreign.reports = slices.DeleteFunc(p.foreign.reports, func(r Report) bool {
		old := p.outdated(r.At) <= now
		if old {
			p.book(&r, -1)
		}
		return old
	})
}

// outdated is the first instant at which a report is older than the limit.
func (p *Pool) outdated(at time.Duration) time.Duration {
	return later(later(at, p.det.ForeignLimit), 1)
}

// nextForgotten is when the oldest report is forgotten; false if there is none.
func (p *Pool) nextForgotten() (at time.Duration, ok bool) {
	for i := range p.foreign.reports {
		if t := p.outdated(p.foreign.reports[i].At); !ok || t < at {
			at, ok = t, true
		}
	}
	return at, ok
}

// requests are all that are known to be in flight on the endpoint, this picker's and the others'; work are their tokens.
func (m *Member) requests() int { return m.inFlight + m.foreign }
func (m *Member) work() int64   { return m.tokens + m.foreignTokens }
