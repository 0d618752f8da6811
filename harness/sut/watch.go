package sut

import (
	"context"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// Watcher is a stage that can read metrics pages while a load is played.
type Watcher interface {
	// Watch samples the router's page and those of all model servers under mark, at once and then every period, until stop is called.
	// A page that cannot be read leaves no sample.
	Watch(mark string, every time.Duration) (stop func())
}

// load plays a plan, with the pages watched where the step asks for it.
func (p player) load(ctx context.Context, s Step, rec *evidence.Step) error {
	if s.Every > 0 {
		if w, ok := p.st.(Watcher); ok {
			defer w.Watch(s.Mark, s.Every)()
		}
	}
	// What comes before, reading the plan for one, is no part of the load: windows into it count from the instant that its requests count from.
	invalid, err := p.st.Load(ctx, *s.Plan, func() { rec.Start = int64(p.st.Now()) })
	if invalid != "" {
		rec.OK, rec.Detail = false, "the load was not the planned one: "+invalid
	}
	return err
}
