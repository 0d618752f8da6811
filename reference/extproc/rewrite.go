package extproc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
)

// Rewrite is one rule that sends requests for a model to others (spec/endpoint-picker.md §2.6).
type Rewrite struct {
	Name    string // for metrics
	Match   string // the model that clients ask for; "": every one
	Targets []Target
}

// Target is a model that a rule chooses, in proportion to its weight. If no target of a rule has a weight all are equal; otherwise
// one without a weight is never chosen.
type Target struct {
	Model  string
	Weight int
}

// Rewriter applies rules; it may be used concurrently.
type Rewriter struct {
	mu      sync.Mutex
	exact   map[string]Rewrite
	generic *Rewrite
	rand    *rand.Rand
}

// NewRewriter checks the rules, all errors at once. The draws between several targets are from a generator of this seed.
func NewRewriter(rules []Rewrite, seed uint64) (*Rewriter, error) {
	w := &Rewriter{rand: rand.New(rand.NewPCG(seed, 0x7265777269746572))}
	return w, w.Set(rules)
}

// Set replaces the rules; wrong ones leave those that are there. Of two rules for the same model the first counts.
func (w *Rewriter) Set(rules []Rewrite) error {
	exact, generic := map[string]Rewrite{}, (*Rewrite)(nil)
	var errs []error
	for i, r := range rules {
		if len(r.Targets) == 0 {
			errs = append(errs, fmt.Errorf("rewrites[%d]: no targets", i))
		}
		for j, t := range r.Targets {
			if t.Model == "" || t.Weight < 0 || t.Weight > 1_000_000 {
				errs = append(errs, fmt.Errorf("rewrites[%d].targets[%d]: expected a model and a weight of 0..1000000, got %+v", i, j, t))
			}
		}
		r.Targets = append([]Target(nil), r.Targets...)
		if r.Match == "" && generic == nil {
			generic = &r
		} else if _, have := exact[r.Match]; r.Match != "" && !have {
			exact[r.Match] = r
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exact, w.generic = exact, generic
	return nil
}

// Target is the model that serves a request for model, and the name of the rule that said so. An exact rule comes before the
// generic one, a rule before the header, and without any the model stays.
func (w *Rewriter) Target(model, header string) (target, rule string) {
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if r, ok := w.exact[model]; ok {
			return w.draw(r.Targets), r.Name
		}
		if w.generic != nil {
			return w.draw(w.generic.Targets), w.generic.Name
		}
	}
	if header != "" {
		return header, "header"
	}
	return model, ""
}

// draw chooses a target. The caller holds mu.
func (w *Rewriter) draw(targets []Target) string {
	if len(targets) == 1 {
		return targets[0].Model
	}
	sum := 0
	for _, t := range targets {
		sum += t.Weight
	}
	if sum == 0 {
		return targets[w.rand.IntN(len(targets))].Model
	}
	n := w.rand.IntN(sum)
	for _, t := range targets {
		if n -= t.Weight; n < 0 {
			return t.Model
		}
	}
	return targets[len(targets)-1].Model // not reached
}

// Models lists the models that the rules name, whose metrics are kept apart whatever else is asked for.
func (w *Rewriter) Models() []string {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	add := func(r Rewrite) {
		if r.Match != "" {
			out = append(out, r.Match)
		}
		for _, t := range r.Targets {
			out = append(out, t.Model)
		}
	}
	for _, r := range w.exact {
		add(r)
	}
	if w.generic != nil {
		add(*w.generic)
	}
	return out
}
