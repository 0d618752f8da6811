package asyncproc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

// quiet is a log handler for what goes on and on while a server is away: of equal messages about equal things one in quietPeriod is
// written, with the number of those that were not (AP-HEALTH-04).
type quiet struct {
	slog.Handler
	clock clock.Clock
	state *quietState
}

type quietState struct {
	mu   sync.Mutex
	last map[string]quietEntry
}

type quietEntry struct {
	at      time.Duration
	skipped int
}

const (
	quietPeriod = 10 * time.Second
	// quietKinds bounds the memory; beyond it everything is forgotten and may be written again.
	quietKinds = 1000
)

func newQuiet(h slog.Handler, c clock.Clock) *quiet {
	return &quiet{Handler: h, clock: c, state: &quietState{last: map[string]quietEntry{}}}
}

// Handle implements slog.Handler. Only warnings are held back, told apart by their message and queue.
func (q *quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Level != slog.LevelWarn {
		return q.Handler.Handle(ctx, r)
	}
	key := r.Message
	about := false
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "queue" {
			key += "\x00" + a.Value.String()
		}
		about = about || a.Key == "request"
		return true
	})
	if about { // one line for each request, if at all
		return q.Handler.Handle(ctx, r)
	}
	now := q.clock.Now()
	q.state.mu.Lock()
	e, known := q.state.last[key]
	skip := known && now-e.at < quietPeriod
	if skip {
		e.skipped++
	} else {
		if e.skipped > 0 {
			r.AddAttrs(slog.Int("skipped", e.skipped))
		}
		e = quietEntry{at: now}
	}
	if len(q.state.last) >= quietKinds {
		clear(q.state.last)
	}
	q.state.last[key] = e
	q.state.mu.Unlock()
	if skip {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}
