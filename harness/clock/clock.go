// Package clock is the only place that reads the machine's clock or arms a timer; drivers take their time from it.
package clock

import (
	"context"
	"time"
)

// Clock tells the time of one run as the offset since the run's epoch. It never goes back.
type Clock interface {
	Now() time.Duration
	// Timer fires once, d from now; stop it when it is no longer needed.
	Timer(d time.Duration) *time.Timer
}

// Real is the machine's monotonic clock.
type Real struct{ epoch time.Time }

// NewReal starts an epoch now.
func NewReal() Real { return Real{epoch: time.Now()} }

// Now is the monotonic offset since the epoch.
func (r Real) Now() time.Duration { return time.Since(r.epoch) }

// Epoch is the wall time of offset 0.
func (r Real) Epoch() time.Time { return r.epoch }

// Timer arms a timer of the machine's clock.
func (r Real) Timer(d time.Duration) *time.Timer { return time.NewTimer(d) }

// Sleep waits for d or until ctx ends, and says whether it slept to the end.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// SleepUntil waits until c reads at, or ctx ends. Deadlines are absolute so that overshoot does not accumulate.
func SleepUntil(ctx context.Context, c Clock, at time.Duration) bool { return Sleep(ctx, at-c.Now()) }

// Wall is the wall clock, for file names and report dates only; no decision may use it.
func Wall() time.Time { return time.Now() }
