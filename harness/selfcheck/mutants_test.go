package selfcheck

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/reference/asyncproc"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/suites/catalog"
)

// tampers tells whether anything of the router is changed.
func tampers(t env.Tamper) bool { return !reflect.ValueOf(t).IsZero() }

func TestMutantsAreWellFormed(t *testing.T) {
	names := map[string]bool{}
	each := func(kind string, ms []Mutant, contracts []string, check func(m Mutant)) {
		if len(ms) == 0 {
			t.Errorf("no mutants of the %s", kind)
		}
		for _, m := range ms {
			if names[m.Name] || m.Name == "" || m.Name == Noop().Name || strings.ContainsAny(m.Name, " +'\"") {
				t.Errorf("%s: the name is taken, or no word", m.Name)
			}
			names[m.Name] = true
			if m.Fault == "" || m.Class == "" || len(m.Meant) == 0 {
				t.Errorf("%s: it does not say what is wrong with it, or what it is meant for", m.Name)
			}
			for _, id := range m.Meant {
				if _, ok := catalog.Find(id); !ok {
					t.Errorf("%s is meant for %s, which is not in the catalogue", m.Name, id)
				}
			}
			for _, c := range m.Except {
				if !slices.Contains(contracts, c) {
					t.Errorf("%s leaves out %s, which is no contract of the %s", m.Name, c, kind)
				}
			}
			check(m)
		}
	}
	each("router", Mutants(), profile.All(), func(m Mutant) {
		if !tampers(m.Tamper) || m.Processor != nil {
			t.Errorf("%s changes nothing of the router, or a processor", m.Name)
		}
	})
	each("processor", ProcessorMutants(), profile.Processors(), func(m Mutant) {
		if tampers(m.Tamper) || m.Processor == nil {
			t.Errorf("%s changes something of the router, or no processor", m.Name)
		}
		for _, id := range m.Meant {
			if !strings.HasPrefix(id, "AP-") {
				t.Errorf("%s is meant for %s, which is not about processors", m.Name, id)
			}
		}
	})
}

func TestPairs(t *testing.T) {
	const n = 500
	alone := map[string]Mutant{}
	for _, m := range Mutants() {
		alone[m.Name] = m
	}
	names := func(ms []Mutant) []string {
		var out []string
		for _, m := range ms {
			out = append(out, m.Name)
		}
		return out
	}
	pairs := Pairs(n, 7, profile.Default)
	if len(pairs) != n || !slices.Equal(names(pairs), names(Pairs(n, 7, profile.Default))) {
		t.Error("one seed gives two lists of pairs")
	}
	if !slices.Equal(names(pairs[:20]), names(Pairs(20, 7, profile.Default))) {
		t.Error("fewer pairs are not the first ones")
	}
	if slices.Equal(names(pairs), names(Pairs(n, 8, profile.Default))) {
		t.Error("another seed gives the same pairs")
	}
	for _, p := range pairs {
		first, second, _ := strings.Cut(p.Name, "+")
		a, okA := alone[first]
		b, okB := alone[second]
		if !okA || !okB || first == second {
			t.Fatalf("%s is no pair of mutants", p.Name)
		}
		if slices.Contains(append(slices.Clone(a.Except), b.Except...), profile.Default) {
			t.Errorf("%s: one of them is no fault under this contract", p.Name)
		}
		if f := sameField(a.Plane, b.Plane); f != "" {
			t.Errorf("%s: both change %s of the data plane", p.Name, f)
		}
		for _, id := range append(slices.Clone(a.Meant), b.Meant...) {
			if !slices.Contains(p.Meant, id) {
				t.Errorf("%s is not meant for %s", p.Name, id)
			}
		}
		if len(p.Meant) != len(slices.Compact(slices.Clone(p.Meant))) || p.Fault != a.Fault+"; "+b.Fault {
			t.Errorf("%s: meant for %v, fault %q", p.Name, p.Meant, p.Fault)
		}
		// What one of them changes the pair changes.
		for i := range reflect.TypeFor[env.Tamper]().NumField() {
			of := func(m Mutant) bool { return !reflect.ValueOf(m.Tamper).Field(i).IsZero() }
			if of(p) != (of(a) || of(b)) {
				t.Errorf("%s: %s is lost or comes from nowhere", p.Name, reflect.TypeFor[env.Tamper]().Field(i).Name)
			}
		}
	}
	if text := PairsText(3, 9); !strings.Contains(text, "--pairs 3 --seed 9") {
		t.Error(text)
	}
}

// sameField names a field that two faults of the data plane both change.
func sameField(a, b env.DataPlane) string {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		if !x.Field(i).IsZero() && !y.Field(i).IsZero() {
			return x.Type().Field(i).Name
		}
	}
	return ""
}

// Both faults are there, the first one first.
func TestBoth(t *testing.T) {
	var did []string
	of := func(name string, p env.DataPlane) env.Tamper {
		note := func(what string) { did = append(did, name+" "+what) }
		return env.Tamper{Config: func(*epconfig.Config) { note("config") }, Wiring: func(*epp.Wiring) { note("wiring") }, Plane: p,
			Document: func(s string) string { return s + name }, Batch: func(s asyncproc.Step) asyncproc.Step { note("batch"); return s }}
	}
	tamper, ok := both(of("a", env.DataPlane{Twice: true}), of("b", env.DataPlane{Early: true}))
	if !ok || !tamper.Plane.Twice || !tamper.Plane.Early || tamper.Document("-") != "-ab" {
		t.Errorf("%v %+v", ok, tamper.Plane)
	}
	tamper.Config(nil)
	tamper.Wiring(nil)
	tamper.Batch(nil)
	if want := "[a config b config a wiring b wiring a batch b batch]"; fmt.Sprint(did) != want {
		t.Errorf("%v, want %s", did, want)
	}
	if _, ok := both(of("a", env.DataPlane{Twice: true, Early: true}), of("b", env.DataPlane{Early: true})); ok {
		t.Error("two faults in one place of the data plane are no pair")
	}
	tamper, ok = both(env.Tamper{}, env.Tamper{AlphaIsStable: true, Document: strings.ToUpper})
	if !ok || !tamper.AlphaIsStable || tamper.Document("x") != "X" || tamper.Config != nil || tamper.Wiring != nil || tamper.Batch != nil {
		t.Error("one of them alone")
	}
}
