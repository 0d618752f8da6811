package selfcheck

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/reference/asyncproc"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
)

// Pairs draws n second-order mutants: two faults at a time. One fault may hide another, so that a suite that finds each alone could still
// let both together pass. A pair is killed if a requirement that is meant for one of the two fails.
func Pairs(n int, seed uint64, contract string) []Mutant {
	var pool []Mutant
	for _, m := range Mutants() {
		if !slices.Contains(m.Except, contract) {
			pool = append(pool, m)
		}
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	var out []Mutant
	for len(out) < n {
		a, b := pool[rng.IntN(len(pool))], pool[rng.IntN(len(pool))]
		if a.Name == b.Name {
			continue
		}
		if t, ok := both(a.Tamper, b.Tamper); ok {
			out = append(out, Mutant{Name: a.Name + "+" + b.Name, Fault: a.Fault + "; " + b.Fault, Class: a.Class + "+" + b.Class,
				Meant: slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(a.Meant), b.Meant...)))), Tamper: t})
		}
	}
	return out
}

// both applies two tamperings, one after the other; false where both change the data plane, which has one of each fault.
func both(a, b env.Tamper) (env.Tamper, bool) {
	none := reflect.ValueOf(env.DataPlane{})
	planeA, planeB := reflect.ValueOf(a.Plane), reflect.ValueOf(b.Plane)
	t := a
	for i := range none.NumField() {
		if planeB.Field(i).IsZero() {
			continue
		}
		if !planeA.Field(i).IsZero() {
			return t, false
		}
		reflect.ValueOf(&t.Plane).Elem().Field(i).Set(planeB.Field(i))
	}
	t.AlphaIsStable = a.AlphaIsStable || b.AlphaIsStable
	if b.Config != nil {
		t.Config = func(c *epconfig.Config) {
			if a.Config != nil {
				a.Config(c)
			}
			b.Config(c)
		}
	}
	if b.Wiring != nil {
		t.Wiring = func(w *epp.Wiring) {
			if a.Wiring != nil {
				a.Wiring(w)
			}
			b.Wiring(w)
		}
	}
	if b.Document != nil {
		t.Document = func(s string) string {
			if a.Document != nil {
				s = a.Document(s)
			}
			return b.Document(s)
		}
	}
	if b.Batch != nil {
		t.Batch = func(s asyncproc.Step) asyncproc.Step {
			if a.Batch != nil {
				s = a.Batch(s)
			}
			return b.Batch(s)
		}
	}
	return t, true
}

// PairsText says how to play the same pairs again.
func PairsText(n int, seed uint64) string {
	return fmt.Sprintf("%d pairs of mutants, drawn with seed %d (weir selfcheck --pairs %d --seed %d plays the same)", n, seed, n, seed)
}
