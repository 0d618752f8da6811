package async

import (
	"math"
	"time"
)

// reading is the last answer of a source.
type reading struct {
	asked  bool
	has    bool
	at     time.Duration // of the answer
	status Status
	value  float64
}

// epsilon absorbs what binary fractions lose: 1 - 0.95 is a little more than 0.05, and the gate whose baseline is 0.05 is closed
// there all the same (AP-GATE-21).
const epsilon = 1e-9

// fresh is the answer of a source, not older than its TTL or the evaluation that began at since; false if it was asked for now.
func (m *Machine) fresh(s SourceID, since time.Duration) (*reading, bool) {
	r := &m.readings[s]
	if r.has && (r.at >= since || m.now-r.at < m.cfg.Sources[s].TTL) {
		return r, true
	}
	if !r.asked {
		r.asked = true
		m.emit(Out{Kind: Read, Source: s})
	}
	return nil, false
}

// read takes a source's answer and goes on with whoever waits for it.
func (m *Machine) read(ev Event) {
	if ev.Source < 0 || int(ev.Source) >= len(m.readings) {
		return
	}
	m.readings[ev.Source] = reading{has: true, at: m.now, status: ev.Status, value: ev.Value}
	for _, q := range m.queues {
		if q.awaits == ev.Source {
			m.decide(q)
		}
		m.resumeAll(&q.held, ev.Source)
	}
	for _, p := range m.pools {
		m.resumeAll(&p.busy, ev.Source)
	}
}

func (m *Machine) resumeAll(l *list, s SourceID) {
	for msg := l.head; msg != nil; {
		next := msg.next
		if msg.awaits == s {
			m.resume(msg)
		}
		msg = next
	}
}

// budgetOf is the share of capacity that a gate leaves, in [0, 1]. If a source must be asked first it is named, otherwise open is
// noSource.
func (m *Machine) budgetOf(n *node, since time.Duration) (b float64, open SourceID) {
	if n == nil {
		return 1, noSource
	}
	switch n.Kind {
	case RedisBudget:
		r, ok := m.fresh(n.Sources[0], since)
		switch {
		case !ok:
			return 0, n.Sources[0]
		case r.status == NoAnswer:
			return 0, noSource
		case r.status == Empty || math.IsNaN(r.value):
			return 1, noSource
		}
		return clamp(r.value), noSource
	case PrometheusSaturation, PrometheusBudget, PrometheusQuery:
		return m.metricBudget(n, since)
	case EndpointScrape:
		return m.scrapeBudget(n, since)
	case LocalMaxConcurrency:
		return clamp(float64(n.Limit-n.used) / float64(n.Limit)), noSource
	case Composite, WaitOnRefuse, TierPriorityAdmission:
		b = 1
		for _, i := range n.inner {
			inner, open := m.budgetOf(i, since)
			if open != noSource {
				return 0, open
			}
			b = min(b, inner)
		}
		return b, noSource
	}
	return 1, noSource
}

// metricBudget is the margin of the first source's value over the threshold (AP-GATE-12, AP-GATE-16, AP-GATE-20).
func (m *Machine) metricBudget(n *node, since time.Duration) (b float64, open SourceID) {
	threshold := 0.0
	fallback := clamp(n.Fallback)
	switch n.Kind {
	case PrometheusSaturation:
		threshold = 1 - n.Threshold
		if fallback >= n.Threshold {
			fallback = 0
		} else {
			fallback = 1 - fallback
		}
	case PrometheusBudget:
		threshold = n.Baseline
	}
	v := math.NaN()
	for _, s := range n.Sources {
		r, ok := m.fresh(s, since)
		if !ok {
			return 0, s
		}
		if r.status == Sample {
			v = r.value
			break
		}
	}
	n.known = true
	if !finite(v) {
		n.state = GateState{Value: n.state.Value, Threshold: threshold}
		return fallback, noSource
	}
	n.state = GateState{Value: v, Threshold: threshold, Available: true}
	if v <= threshold+epsilon {
		return 0, noSource
	}
	return clamp(v - threshold), noSource
}

func (m *Machine) scrapeBudget(n *node, since time.Duration) (b float64, open SourceID) {
	var values [2]float64
	for i, s := range n.Sources {
		r, ok := m.fresh(s, since)
		if !ok {
			return 0, s
		}
		if r.status != Sample || !finite(r.value) {
			return clamp(n.Fallback), noSource
		}
		values[i] = r.value
	}
	saturation := values[0]
	if n.MaxCountPerPod > 0 {
		pods := 1.0
		if len(n.Sources) > 1 {
			pods = values[1]
		}
		if pods <= 0 { // AP-GATE-32
			return clamp(n.Fallback), noSource
		}
		saturation /= n.MaxCountPerPod * pods
	}
	if b = clamp(1 - clamp(saturation) - n.Baseline); b <= epsilon {
		b = 0
	}
	return b, noSource
}

func clamp(v float64) float64 { return min(max(v, 0), 1) }
