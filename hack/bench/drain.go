package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/wire"
)

const (
	backlog = 10_000
	drains  = 7
)

// drains measures how fast a backlog leaves when capacity appears: the requests wait on an empty pool, each on its own stream, until a
// server with room for all of them comes. The rate is over the instants at which the client has the first and the last destination. The
// client needs as much CPU time as the picker and shares its processors, and whatever else runs can only slow both down: the best counts.
func (b *bench) drains(ctx context.Context) ([]row, error) {
	p, err := b.startPicker(ctx, fmt.Sprintf(concurrency, backlog), nil)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	c, err := dial(p.addr)
	if err != nil {
		return nil, err
	}
	defer c.close()
	var rates []float64
	var costs []time.Duration
	for range drains {
		took, used, err := b.drain(ctx, p, c)
		if err != nil {
			return nil, err
		}
		rates, costs = append(rates, (backlog-1)/took.Seconds()), append(costs, used.total()/backlog)
		fmt.Fprintf(os.Stderr, "  %.0f dispatches/s, %v CPU of the picker each\n", rates[len(rates)-1], costs[len(costs)-1])
	}
	best := slices.Max(rates)
	return []row{{
		what: "a backlog of 10,000 requests of 1,000 tenants on as many streams leaves", target: "over 20,000 dispatches/s",
		measured: fmt.Sprintf("%.0f/s (best of %d; median %.0f); %.1f µs CPU of the picker for each (median)", best, drains, median(rates), micros(median(costs))),
		met:      best > 20_000,
	}}, nil
}

// drain fills the queue, lets it go and ends everything. No response begins before the last request has its destination.
func (b *bench) drain(ctx context.Context, p *process, c *client) (took time.Duration, used usage, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := p.setPool(nil); err != nil {
		return 0, usage{}, err
	}
	// Without this fence the first requests could still find the server of the last drain.
	if err := p.await(ctx, wire.PrefixEPP+"ready_endpoints", 0); err != nil {
		return 0, usage{}, err
	}
	now := clock.NewReal()
	got := make([]time.Duration, backlog)
	var placed, all sync.WaitGroup
	placed.Add(backlog)
	release := make(chan struct{})
	for i := range backlog {
		all.Go(func() {
			x, _, err := c.dispatched(ctx, tenant(i%1000))
			got[i] = now.Now()
			placed.Done()
			<-release
			if err == nil {
				err = x.respond()
			}
			if err != nil {
				cancel(fmt.Errorf("request %d: %w", i, err))
			}
		})
	}
	before, err := b.letGo(ctx, p)
	if err != nil {
		cancel(err)
	}
	placed.Wait()
	after, err := p.cpu()
	if err != nil {
		cancel(err)
	}
	close(release)
	all.Wait()
	return slices.Max(got) - slices.Min(got), after.since(before), context.Cause(ctx)
}

// letGo adds a server as soon as the whole backlog waits.
func (b *bench) letGo(ctx context.Context, p *process) (before usage, err error) {
	if err := p.await(ctx, wire.PrefixFlowControl+wire.MetricQueueSize, backlog); err != nil {
		return before, err
	}
	if before, err = p.cpu(); err != nil {
		return before, err
	}
	return before, p.setPool(b.fleet.addresses[:1])
}

// await waits until the series of a family add up to want.
func (p *process) await(ctx context.Context, family string, want float64) error {
	for {
		page, err := p.page(ctx)
		if err != nil {
			return err
		}
		sum := 0.0
		for line := range bytes.Lines(page) {
			if rest, ok := bytes.CutPrefix(line, []byte(family)); ok && (rest[0] == '{' || rest[0] == ' ') {
				v, err := strconv.ParseFloat(string(bytes.TrimSpace(rest[bytes.LastIndexByte(rest, ' '):])), 64)
				if err != nil {
					return fmt.Errorf("%s: %w", line, err)
				}
				sum += v
			}
		}
		if sum == want {
			return nil
		}
		if !clock.Sleep(ctx, 10*time.Millisecond) {
			return fmt.Errorf("%s is %v, waited for %v: %w", family, sum, want, ctx.Err())
		}
	}
}
