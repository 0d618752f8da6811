package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

const (
	burstCount = 1000
	burstSize  = 16
	slots      = 4
	holdMost   = 2 * time.Millisecond // a model server is busy with a request for up to this long
)

// running counts the requests that have a destination and have not begun to end, as the client knows it.
type running struct{ now, most atomic.Int64 }

func (r *running) begin() {
	n := r.now.Add(1)
	for most := r.most.Load(); n > most && !r.most.CompareAndSwap(most, n); most = r.most.Load() {
	}
}

func (r *running) end() { r.now.Add(-1) }

// bursts sends bursts at a pool of four slots. A request counts from the moment at which the client has its destination until just
// before the client ends it, by the end of its response or, one in four, by leaving: what the client counts is never more than what
// runs, and what it counts beyond four is overshoot.
func (b *bench) bursts(ctx context.Context) ([]row, error) {
	p, err := b.startPicker(ctx, fmt.Sprintf(concurrency, slots), b.fleet.addresses[:1])
	if err != nil {
		return nil, err
	}
	defer p.stop()
	c, err := dial(p.addr)
	if err != nil {
		return nil, err
	}
	defer c.close()
	over, full := 0, 0
	most := int64(0)
	for range burstCount {
		var r running
		err := parallel(ctx, burstSize, burstSize, func(ctx context.Context, i int) error {
			ctx, leave := context.WithCancel(ctx)
			defer leave()
			x, _, err := c.dispatched(ctx, tenant(i))
			if err != nil {
				return err
			}
			r.begin()
			clock.Sleep(ctx, rand.N(holdMost))
			r.end()
			if i%4 == 3 {
				return nil
			}
			return x.respond()
		})
		if err != nil {
			return nil, err
		}
		n := r.most.Load()
		most = max(most, n)
		if n > slots {
			over++
		}
		if n >= slots {
			full++
		}
	}
	return []row{{
		what:     fmt.Sprintf("overshoot in %d bursts of %d requests at %d slots (concurrency detector)", burstCount, burstSize, slots),
		target:   "0",
		measured: fmt.Sprintf("%d; all slots full in %d bursts, more than that in %d", max(0, most-slots), full, over),
		met:      over == 0 && full > burstCount/2, // bursts that never fill the pool show nothing
	}}, nil
}

const (
	queueDepth  = 5   // waiting requests at which a model server counts as full
	clients     = 400 // that always want something
	sampledFor  = 5 * time.Second
	waitingMost = 40 * time.Millisecond // a request leaves a model server's queue after up to this long
)

// outstanding is what waits at the model servers. An interval is the time between two pages of the first server.
type outstanding struct {
	f     *fleet // its lock is over everything here
	limit int    // requests that may wait in the whole pool

	total, most    int // now, and at most
	worst, arrived int // most, and dispatches, since the interval began
	intervals      int
	busiest        int // most dispatches in an interval
	over           int // intervals in which more than limit waited
}

// page ends an interval.
func (o *outstanding) page(address string) {
	if address != o.f.addresses[0] {
		return
	}
	o.intervals++
	o.busiest = max(o.busiest, o.arrived)
	if o.worst > o.limit {
		o.over++
	}
	o.arrived, o.worst = 0, o.total
}

func (o *outstanding) begin(address string) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	o.f.waiting[address]++
	o.total++
	o.arrived++
	o.worst, o.most = max(o.worst, o.total), max(o.most, o.total)
}

func (o *outstanding) end(address string) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	o.f.waiting[address]--
	o.total--
}

// samples keeps a pool under the utilization detector full. Between two scrapes the picker knows only what it dispatched itself, so
// that it has to add that to the last sample; without it the whole backlog would leave within one interval. At these model servers a
// request waits until it ends. A request that was dispatched before a scrape and reaches its server after it is in no count of the
// picker's: that is where overshoot comes from.
func (b *bench) samples(ctx context.Context) ([]row, error) {
	p, err := b.startPicker(ctx, fmt.Sprintf(utilization, queueDepth), b.fleet.addresses)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	c, err := dial(p.addr)
	if err != nil {
		return nil, err
	}
	defer c.close()
	o := &outstanding{f: b.fleet, limit: queueDepth * len(b.fleet.addresses)}
	b.fleet.mu.Lock()
	b.fleet.scraped = o.page
	b.fleet.mu.Unlock()
	now := clock.NewReal()
	var sent atomic.Int64
	err = parallel(ctx, clients, clients, func(ctx context.Context, i int) error {
		for now.Now() < sampledFor {
			x, endpoint, err := c.dispatched(ctx, tenant(i))
			if err != nil {
				return err
			}
			o.begin(endpoint)
			sent.Add(1)
			clock.Sleep(ctx, rand.N(waitingMost))
			o.end(endpoint)
			if err := x.respond(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.fleet.mu.Lock()
	defer b.fleet.mu.Unlock()
	b.fleet.scraped = nil
	excess := max(0, o.most-o.limit)
	return []row{{
		what: fmt.Sprintf("overshoot between two metric samples (utilization detector, %d clients, %d servers, room for %d waiting requests)",
			clients, len(b.fleet.addresses), o.limit),
		target: fmt.Sprintf("at most %d, the load that is projected", o.limit),
		measured: fmt.Sprintf("at most %d; some in %d of %d scrape intervals; up to %d dispatches in one, %d in all",
			excess, o.over, o.intervals, o.busiest, sent.Load()),
		met: excess <= o.limit && o.most >= o.limit, // a pool that is never full shows nothing
	}}, nil
}
