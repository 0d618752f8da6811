package epp

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-weir/weir/reference/loadsync"
	"github.com/llm-weir/weir/reference/picker"
)

// Loads is what is in flight at each endpoint that has something, in the order in which the driver came to know them, also at endpoints
// that have left the pool; false once the driver has ended.
func (d *Driver) Loads() (loads []loadsync.Load, known bool) {
	ack := make(chan struct{})
	d.post(event{ack: ack, look: func() {
		for id := range picker.EndpointID(d.pool.size()) {
			if requests, tokens := d.cfg.InFlight(id); requests > 0 || tokens > 0 {
				e, _ := d.pool.get(id)
				loads = append(loads, loadsync.Load{Address: e.Address, Requests: requests, Tokens: tokens})
			}
		}
	}})
	select {
	case <-ack:
		return loads, true
	case <-d.done:
		return nil, false
	}
}

// Report tells the machine what another replica has in flight. Addresses that this driver has never had in its pool are left out; once
// it has, the replica's next report brings them.
func (d *Driver) Report(r loadsync.Report) {
	own := picker.Report{Replica: r.Replica, At: r.At}
	for _, l := range r.Loads {
		if id, known := d.pool.id(l.Address); known {
			own.Loads = append(own.Loads, picker.ForeignLoad{Endpoint: id, Requests: l.Requests, Tokens: l.Tokens})
		}
	}
	d.post(event{ev: picker.Event{Kind: picker.Foreign, Report: own}})
}

// size is the number of ids given out.
func (p *poolTable) size() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.byID)
}

// id is that of an address.
func (p *poolTable) id(address string) (picker.EndpointID, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	id, known := p.ids[address]
	return id, known
}

// synchronize shares what is in flight with the other replicas, if the options and the document say so.
func (s *Server) synchronize(o Options) {
	if o.synchronized() {
		s.sync = loadsync.Start(o.syncer(s.metrics, s.driver, s.moved))
	}
}

// syncer is the configuration of the one that shares a driver's load. moved says that it may have changed.
func (o *Options) syncer(m *Metrics, d *Driver, moved <-chan struct{}) loadsync.Config {
	errs, replicas := m.registerSync()
	for _, op := range loadsync.Operations() {
		errs.WithLabelValues(op)
	}
	return loadsync.Config{
		Redis: o.redis, Pool: o.PoolName, Limit: o.Config.Picker.Flow.Detector.ForeignLimit, Clock: o.Clock, Logger: o.Logger,
		Changed: moved, Loads: d.Loads, OnReport: d.Report,
		OnError:    func(operation string, _ error) { errs.WithLabelValues(operation).Inc() },
		OnReplicas: func(n int) { replicas.Set(float64(n)) },
	}
}

// synchronized tells whether other replicas are told of, and count: they do where requests in flight are counted.
func (o *Options) synchronized() bool {
	return o.redis != nil && o.Wiring.InFlight != nil && o.Config.Picker.Flow.Detector.ForeignLimit > 0
}

// notify notes that what is in flight has changed; it never waits.
func (s *Server) notify() {
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// registerSync makes the series of a picker that is synchronized with others.
func (m *Metrics) registerSync() (errors *prometheus.CounterVec, replicas prometheus.Gauge) {
	errors = m.counter("weir_picker_sync_errors_total", "What failed while the load in flight was shared with other replicas.", "operation")
	return errors, m.gauge("weir_picker_sync_replicas", "Other replicas whose load in flight counts here.").WithLabelValues()
}
