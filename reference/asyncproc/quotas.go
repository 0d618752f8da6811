package asyncproc

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/redisq"
)

// quotas takes from quotas and gives back, and keeps what is held from expiring.
type quotas struct {
	sources *sources
	process string // part of every holder's name, unlike that of any other process
	log     *slog.Logger

	frees sync.WaitGroup // under way
	mu    sync.Mutex
	held  map[async.HoldID]heldQuota
	lines map[heldQuota][]question // of quotas that are being asked: who waits for that
}

// question is one that the machine has asked; answer takes the answer.
type question struct {
	ask    async.Out
	answer func(async.QuotaAnswer)
}

type heldQuota struct {
	address string
	quota   redisq.Quota
}

func newQuotas(s *sources, log *slog.Logger) *quotas {
	return &quotas{sources: s, process: redisq.NewToken(), log: log, held: map[async.HoldID]heldQuota{}, lines: map[heldQuota][]question{}}
}

func (q *quotas) holder(id async.HoldID) string {
	return q.process + ":" + strconv.FormatUint(uint64(id), 10)
}

func described(o *async.Out) heldQuota {
	return heldQuota{o.Quota.Address, redisq.Quota{Key: o.Quota.Key(o.Value), Concurrency: o.Quota.Concurrency, Limit: o.Quota.Limit, Window: o.Quota.Window}}
}

// ask asks a quota. Questions about one quota are asked in their order: the earliest deadline gets what is left of it (AP-TRN-03). Those that
// wait when the server fails are not asked any more.
func (q *quotas) ask(ctx context.Context, o question, spawn func(func())) {
	h := described(&o.ask)
	q.mu.Lock()
	defer q.mu.Unlock()
	line, busy := q.lines[h]
	q.lines[h] = append(line, o)
	if busy {
		return
	}
	spawn(func() {
		for line := q.line(h); len(line) > 0; line = q.line(h) {
			a := async.Over
			for i := range line {
				if a != async.QuotaFailed {
					a = q.take(ctx, &line[i].ask)
				}
				line[i].answer(a)
			}
		}
	})
}

// line takes those who wait for a quota; none: it is not asked any more.
func (q *quotas) line(h heldQuota) []question {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.lines[h]
	if q.lines[h] = nil; len(line) == 0 {
		delete(q.lines, h)
	}
	return line
}

func (q *quotas) take(ctx context.Context, o *async.Out) async.QuotaAnswer {
	h := described(o)
	ok, err := redisq.Take(ctx, q.sources.client(h.address), h.quota, q.holder(o.Hold))
	switch {
	case err != nil:
		q.log.Warn("quota", "error", err)
		// The server may have taken it all the same.
		_ = redisq.GiveBack(ctx, q.sources.client(h.address), h.quota, q.holder(o.Hold))
		return async.QuotaFailed
	case !ok:
		return async.Over
	}
	if h.quota.Concurrency {
		q.mu.Lock()
		q.held[o.Hold] = h
		q.mu.Unlock()
	}
	return async.Within
}

// giveBackPauses are those between attempts to give back; after them the lease ends it.
var giveBackPauses = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second}

func (q *quotas) giveBack(ctx context.Context, o *async.Out) {
	h := described(o)
	q.mu.Lock()
	delete(q.held, o.Hold)
	q.mu.Unlock()
	for i := 0; ; i++ {
		err := redisq.GiveBack(ctx, q.sources.client(h.address), h.quota, q.holder(o.Hold))
		if err == nil || i == len(giveBackPauses) || !clock.Sleep(ctx, giveBackPauses[i]) {
			if err != nil {
				q.log.Warn("quota not given back; its lease ends it", "key", h.quota.Key, "error", err)
			}
			return
		}
	}
}

// flush waits until everything is given back; false if ctx ends first.
func (q *quotas) flush(ctx context.Context) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.frees.Wait() // each gives up after its last pause
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// holdInterval is below a third of the shortest lease.
const holdInterval = 3 * time.Second

// hold extends the leases of everything that is held.
func (q *quotas) hold(ctx context.Context) {
	q.mu.Lock()
	by := map[heldQuota][]string{}
	for id, h := range q.held {
		by[h] = append(by[h], q.holder(id))
	}
	q.mu.Unlock()
	for h, holders := range by {
		if err := redisq.Hold(ctx, q.sources.client(h.address), h.quota, holders); err != nil {
			q.log.Warn("quota leases", "error", fmt.Errorf("%d holders: %w", len(holders), err))
		}
	}
}
