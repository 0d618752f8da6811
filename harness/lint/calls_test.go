package lint

import (
	"go/ast"
	"slices"
	"testing"
)

// clockCalls read the machine's clock or arm a timer.
var clockCalls = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

// testClockCalls are those that a test may use: they measure, they do not wait.
var testClockCalls = []string{"Now", "Since", "Until"}

// clockRule keeps time in harness/clock: a decision that reads the machine's clock cannot be replayed, and a wait for a fixed time
// is either too short on a busy machine or too long on all others.
func clockRule(t *tree) []problem {
	return eachSelector(t, "time", func(s source, sel *ast.SelectorExpr) string {
		switch name := sel.Sel.Name; {
		case s.pkg() == "harness/clock" && !s.test, !slices.Contains(clockCalls, name):
			return ""
		case s.test && slices.Contains(testClockCalls, name):
			return ""
		case s.test:
			return "time." + name + " in a test: wait for the event itself, bound it with context.WithTimeout, or use virtual time"
		default:
			return "time." + name + " outside harness/clock: take a clock.Clock, or the instant as an argument"
		}
	})
}

// generatorNames are what math/rand and math/rand/v2 offer beside the global functions.
var generatorNames = []string{"New", "NewSource", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "Source64", "PCG", "ChaCha8", "Zipf"}

// randomRule keeps the global generator, which nobody can seed, out of the cores.
func randomRule(t *tree) []problem {
	find := func(s source, sel *ast.SelectorExpr) string {
		if !matches(s.pkg(), cores) || s.test || slices.Contains(generatorNames, sel.Sel.Name) {
			return ""
		}
		return "rand." + sel.Sel.Name + " uses the global generator: take a *rand.Rand made from the run's seed"
	}
	return append(eachSelector(t, "math/rand", find), eachSelector(t, "math/rand/v2", find)...)
}

// goroutineRule keeps goroutines and channels' selects out of the cores: what runs when would be the scheduler's choice.
func goroutineRule(t *tree) []problem {
	var out []problem
	for _, s := range t.goes {
		if !matches(s.pkg(), cores) || s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt:
				out = append(out, t.problem(s, n.Pos(), "goroutine in a core: return the work as an output and let the driver run it"))
			case *ast.SelectStmt:
				out = append(out, t.problem(s, n.Pos(), "select in a core: the choice among ready channels is random; make it an event"))
			}
			return true
		})
	}
	return out
}

// eachSelector calls find for every use of a name of an imported package and collects what it says. A dot import is reported.
func eachSelector(t *tree, importPath string, find func(source, *ast.SelectorExpr) string) []problem {
	var out []problem
	for _, s := range t.goes {
		local := ""
		for name, p := range s.imports() {
			if p == importPath {
				local = name
			}
		}
		if local == "." {
			out = append(out, t.problem(s, s.file.Package, "dot import of %s hides its calls: import it by name", importPath))
		}
		if local == "" || local == "." {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			// Obj is set for identifiers declared in the file: a variable that shadows the package is no use of it.
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && x.Obj == nil {
				if what := find(s, sel); what != "" {
					out = append(out, t.problem(s, sel.Pos(), "%s", what))
				}
			}
			return true
		})
	}
	return out
}

func TestOnlyTheClockReadsTheClock(t *testing.T) { check(t, clockRule) }

func TestOnlyTheClockReadsTheClockCanFail(t *testing.T) {
	try(t, clockRule,
		trial{"under another name", map[string]string{"harness/run/a.go": "package run\nimport tm \"time\"\nvar x = tm.Now()\n"}, []string{"harness/run/a.go:3"}},
		trial{"as a value", map[string]string{"a/a.go": "package a\nimport \"time\"\nvar now = time.Now\n"}, []string{"a/a.go:3"}},
		trial{"a sleep in a test", map[string]string{"a/a_test.go": "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"}, []string{"a/a_test.go:3"}},
		trial{"a dot import", map[string]string{"a/a.go": "package a\nimport . \"time\"\nvar x = Now()\n"}, []string{"a/a.go:1"}},
		trial{"a measurement in a test", map[string]string{"a/a_test.go": "package a\nimport \"time\"\nvar x = time.Now()\n"}, nil},
		trial{"the clock itself", map[string]string{"harness/clock/a.go": "package clock\nimport \"time\"\nvar x = time.Now()\n"}, nil},
		trial{"a variable of that name", map[string]string{"a/a.go": "package a\nimport \"time\"\nvar d time.Duration\nfunc f() { time := x{}; time.Now() }\n"}, nil},
	)
}

func TestCoresUseNoGlobalRandomness(t *testing.T) { check(t, randomRule) }

func TestCoresUseNoGlobalRandomnessCanFail(t *testing.T) {
	try(t, randomRule,
		trial{"version 2", map[string]string{"sim-vllm/engine/a.go": "package engine\nimport \"math/rand/v2\"\nvar x = rand.IntN(3)\n"}, []string{"sim-vllm/engine/a.go:3"}},
		trial{"version 1", map[string]string{"loadgen/plan/a.go": "package plan\nimport \"math/rand\"\nvar x = rand.Int()\n"}, []string{"loadgen/plan/a.go:3"}},
		trial{"a seeded generator", map[string]string{"loadgen/plan/a.go": "package plan\nimport \"math/rand/v2\"\nvar x = rand.New(rand.NewPCG(1, 2))\n"}, nil},
	)
}

func TestCoresHaveNoGoroutines(t *testing.T) { check(t, goroutineRule) }

func TestCoresHaveNoGoroutinesCanFail(t *testing.T) {
	try(t, goroutineRule,
		trial{"a goroutine", map[string]string{"reference/async/a.go": "package async\nfunc f() {\n\tgo f()\n}\n"}, []string{"reference/async/a.go:3"}},
		trial{"a select", map[string]string{"reference/async/a.go": "package async\nfunc f() {\n\tselect {}\n}\n"}, []string{"reference/async/a.go:3"}},
		trial{"a driver", map[string]string{"reference/epp/a.go": "package epp\nfunc f() {\n\tgo f()\n}\n"}, nil},
	)
}
