package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

const (
	streams  = 64     // open at a time
	rounds   = 5      // of each server, in turns
	requests = 10_000 // of one round
	idleFor  = 10 * time.Second
)

// subject is one of the servers that are compared.
type subject struct {
	name    string
	tenants int
	proc    *process
	client  *client
	used    []usage // by round
}

// perRequest are the CPU times of a request by round.
func (s *subject) perRequest() []time.Duration {
	var out []time.Duration
	for _, u := range s.used {
		out = append(out, u.total()/requests)
	}
	return out
}

// steady compares the CPU time of a request for one, many and very many tenants, side by side: the servers take turns, and one that
// waits for its turn is stopped, so that it takes no time from the others. Then it looks at the picker that has seen most tenants.
func (b *bench) steady(ctx context.Context) ([]row, error) {
	subjects := []*subject{{name: "canned answers", tenants: 1}, {name: "1 tenant", tenants: 1}, {name: "1,000 tenants", tenants: 1000},
		{name: "10,000 tenants", tenants: 10_000}}
	for i, s := range subjects {
		var err error
		if i == 0 {
			s.proc, err = startCanned(ctx)
		} else {
			s.proc, err = b.startPicker(ctx, fmt.Sprintf(concurrency, 1000), b.fleet.addresses)
		}
		if err != nil {
			return nil, err
		}
		defer s.proc.stop()
		if s.client, err = dial(s.proc.addr); err != nil {
			return nil, err
		}
		defer s.client.close()
		if err := s.load(ctx, max(2000, s.tenants)); err != nil { // warm up, and fill the books of the tenants
			return nil, err
		}
		if err := s.proc.pause(); err != nil {
			return nil, err
		}
	}
	for round := range rounds {
		for _, s := range subjects {
			if err := s.round(ctx); err != nil {
				return nil, fmt.Errorf("round %d of %s: %w", round, s.name, err)
			}
		}
	}
	rows := costRows(subjects)
	last := subjects[len(subjects)-1]
	if err := last.proc.resume(); err != nil {
		return nil, err
	}
	page, err := pageRow(ctx, last.proc)
	if err != nil {
		return nil, err
	}
	idle, err := idleRow(ctx, last.proc)
	if err != nil {
		return nil, err
	}
	idle.what = fmt.Sprintf("CPU of an idle picker that has seen 10,000 tenants and scrapes %d servers", len(b.fleet.addresses))
	idle.target = "below 1 % of a core"
	if err := last.proc.setPool(nil); err != nil {
		return nil, err
	}
	alone, err := idleRow(ctx, last.proc)
	alone.what = "the same without servers to scrape"
	return append(rows, page, idle, alone), err
}

func (s *subject) load(ctx context.Context, n int) error {
	return parallel(ctx, streams, n, func(ctx context.Context, i int) error { return s.client.whole(ctx, tenant(i%s.tenants)) })
}

func (s *subject) round(ctx context.Context) error {
	if err := s.proc.resume(); err != nil {
		return err
	}
	before, err := s.proc.cpu()
	if err != nil {
		return err
	}
	if err := s.load(ctx, requests); err != nil {
		return err
	}
	after, err := s.proc.cpu()
	if err != nil {
		return err
	}
	u := after.since(before)
	s.used = append(s.used, u)
	fmt.Fprintf(os.Stderr, "  %-14s %v user %v system per request\n", s.name, u.user/requests, u.system/requests)
	return s.proc.pause()
}

func costRows(subjects []*subject) []row {
	const limit = 110 * time.Microsecond
	var rows []row
	base := subjects[0]
	one := subjects[1]
	for _, s := range subjects[1:] {
		costs := s.perRequest()
		m := median(costs)
		var user, system time.Duration
		for _, u := range s.used {
			user, system = user+u.user/rounds/requests, system+u.system/rounds/requests
		}
		rows = append(rows, row{
			what:     "CPU time of the picker per request, " + s.name,
			target:   fmt.Sprintf("at most %d µs", limit.Microseconds()),
			measured: fmt.Sprintf("%.1f µs (%.1f to %.1f; user %.1f, system %.1f)", micros(m), micros(slices.Min(costs)), micros(slices.Max(costs)), micros(user), micros(system)),
			met:      m <= limit,
		})
	}
	for _, s := range subjects[2:] {
		r := ratio(s, one)
		rows = append(rows, row{what: "the same, " + s.name + " over 1", target: "at most 1.2", measured: fmt.Sprintf("%.2f", r), met: r <= 1.2})
	}
	m := median(base.perRequest())
	return append(rows, row{what: "the same of a server with canned answers and no picker in it",
		measured: fmt.Sprintf("%.1f µs; the picker with 1 tenant takes %.2f times as much", micros(m), ratio(one, base))})
}

// ratio is the median over the rounds of what one costs over the other in the same round.
func ratio(s, base *subject) float64 {
	var out []float64
	below := base.perRequest()
	for i, d := range s.perRequest() {
		out = append(out, float64(d)/float64(below[i]))
	}
	return median(out)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func median[T float64 | time.Duration](v []T) T {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// idleRow measures a picker to which nobody comes any more.
func idleRow(ctx context.Context, p *process) (row, error) {
	clock.Sleep(ctx, time.Second) // what the last request left behind
	before, err := p.cpu()
	if err != nil {
		return row{}, err
	}
	c := clock.NewReal()
	clock.Sleep(ctx, idleFor)
	took := c.Now()
	after, err := p.cpu()
	if err != nil {
		return row{}, err
	}
	share := 100 * float64(after.since(before).total()) / float64(took)
	return row{
		measured: fmt.Sprintf("%.1f %% (user %v, system %v in %v)", share, after.since(before).user, after.since(before).system, took.Round(time.Millisecond)),
		met:      share < 1,
	}, ctx.Err()
}

// pageRow reads the metrics page of a picker.
func pageRow(ctx context.Context, p *process) (row, error) {
	const limit = 2 << 20
	c := clock.NewReal()
	var took []time.Duration
	size := math.MaxInt
	for range 11 {
		began := c.Now()
		body, err := p.page(ctx)
		if err != nil {
			return row{}, err
		}
		took, size = append(took, c.Now()-began), len(body)
	}
	return row{
		what: "metrics page after 10,000 tenants", target: "below 2 MiB",
		measured: fmt.Sprintf("%d bytes, read in %v (median of %d)", size, median(took).Round(100*time.Microsecond), len(took)),
		met:      size < limit,
	}, nil
}

// page is the picker's metrics page.
func (p *process) page(ctx context.Context) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.metrics, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept-Encoding", "identity")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
