package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// matches tells whether package p fits one of the patterns.
func matches(p string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if pattern == "..." {
			return true
		}
		if parent, ok := strings.CutSuffix(pattern, "/..."); ok {
			return p == parent || strings.HasPrefix(p, parent+"/")
		}
		return p == pattern
	})
}

// edge is one import statement; packages of this module are relative to its root.
type edge struct {
	to   string
	own  bool // to is a package of this module
	file string
	line int
	test bool
}

// graph lists the imports of every package.
func graph(t *tree) map[string][]edge {
	g := map[string][]edge{}
	for _, s := range t.goes {
		for _, i := range s.file.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			rel, own := strings.CutPrefix(p, module+"/")
			g[s.pkg()] = append(g[s.pkg()], edge{rel, own, s.path, t.line(i.Pos()), s.test})
		}
	}
	return g
}

func importRule(row importRow) rule {
	return func(t *tree) []problem {
		g := graph(t)
		var out []problem
		for _, from := range sortedKeys(g) {
			if matches(from, row.from) && !matches(from, row.except) {
				out = append(out, walkImports(g, row, from)...)
			}
		}
		return out
	}
}

// walkImports follows the imports of one package. What a test file of another package imports is not reached through it.
func walkImports(g map[string][]edge, row importRow, from string) []problem {
	var out []problem
	seen := map[string]bool{from: true}
	type place struct {
		pkg   string
		chain []string
		first edge // the import in `from` through which the walk left
	}
	todo := []place{{pkg: from}}
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		for _, e := range g[at.pkg] {
			if e.test && (at.pkg != from || !row.tests) {
				continue
			}
			first := at.first
			if at.pkg == from {
				first = e
			}
			if matches(e.to, row.deny) && !matches(e.to, row.allow) {
				via := ""
				if len(at.chain) > 0 {
					via = " through " + strings.Join(at.chain, " -> ")
				}
				out = append(out, problem{first.file, first.line, fmt.Sprintf("%s may not reach %s%s (%s): %s", from, e.to, via, row.name, row.why)})
				continue
			}
			if e.own && !row.direct && !seen[e.to] {
				seen[e.to] = true
				todo = append(todo, place{e.to, append(slices.Clone(at.chain), e.to), first})
			}
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func TestImports(t *testing.T) {
	for _, row := range importTable {
		t.Run(strings.ReplaceAll(row.name, " ", "_"), func(t *testing.T) { check(t, importRule(row)) })
	}
}

// goFile is a file of package p with the given imports, one a line from line 2 on.
func goFile(p string, imports ...string) string {
	s := "package " + p + "\n"
	for _, i := range imports {
		s += "import _ \"" + strings.Replace(i, "~", module, 1) + "\"\n"
	}
	return s
}

func TestImportsCanFail(t *testing.T) {
	byName := map[string]importRow{}
	for _, row := range importTable {
		byName[row.name] = row
	}
	for name, trials := range map[string][]trial{
		"cores do no I/O and keep no clock": {
			{"a core with a lock", map[string]string{"sim-vllm/engine/a.go": goFile("engine", "time", "sync")}, []string{"sim-vllm/engine/a.go:3"}},
			{"a core that reaches files through another package", map[string]string{"loadgen/plan/a.go": goFile("plan", "~/loadgen/x"),
				"loadgen/x/x.go": goFile("x", "os")}, []string{"loadgen/plan/a.go:2"}},
			{"subpackages count", map[string]string{"reference/async/a.go": goFile("async", "sync/atomic")}, []string{"reference/async/a.go:2"}},
			{"a test of a core may read files; a driver may lock", map[string]string{"reference/picker/a_test.go": goFile("picker", "os"),
				"reference/epp/a.go": goFile("epp", "sync")}, nil}},
		"the reference stands alone": {
			{"evidence is not for it", map[string]string{"reference/epp/a.go": goFile("epp", "~/harness/clock", "~/harness/evidence")},
				[]string{"reference/epp/a.go:3"}},
			{"neither in a test", map[string]string{"reference/epp/a_test.go": goFile("epp", "~/sim-vllm/engine")}, []string{"reference/epp/a_test.go:2"}},
			{"clock and wire are", map[string]string{"reference/epp/a.go": goFile("epp", "~/harness/clock", "~/harness/wire")}, nil}},
		"the simulator stands alone": {
			{"no load generator", map[string]string{"sim-vllm/server/a.go": goFile("server", "~/loadgen/plan")}, []string{"sim-vllm/server/a.go:2"}},
			{"its own engine", map[string]string{"sim-vllm/server/a.go": goFile("server", "~/sim-vllm/engine")}, nil}},
		"the load generator stands alone": {
			{"no simulator", map[string]string{"loadgen/runner/a.go": goFile("runner", "~/sim-vllm/engine")}, []string{"loadgen/runner/a.go:2"}},
			{"its own plan", map[string]string{"loadgen/runner/a.go": goFile("runner", "~/loadgen/plan")}, nil}},
		"judges see evidence only": {
			{"through a third package", map[string]string{"harness/checks/a.go": goFile("checks", "~/harness/x"), "harness/x/a.go": goFile("x", "~/reference/epp")},
				[]string{"harness/checks/a.go:2"}},
			{"evidence", map[string]string{"harness/checks/a.go": goFile("checks", "~/harness/evidence")}, nil}},
		"judges do no I/O": {
			{"a check that opens files", map[string]string{"harness/checks/a.go": goFile("checks", "os")}, []string{"harness/checks/a.go:2"}},
			{"its test may, and evidence may", map[string]string{"harness/checks/a_test.go": goFile("checks", "os"),
				"harness/checks/a.go": goFile("checks", "~/harness/evidence"), "harness/evidence/a.go": goFile("evidence", "os")}, nil}},
		"the report writes files and nothing else": {
			{"a report that runs programs", map[string]string{"harness/report/a.go": goFile("report", "os", "os/exec")}, []string{"harness/report/a.go:3"}},
			{"one that writes", map[string]string{"harness/report/a.go": goFile("report", "os")}, nil}},
		"suites know only the system under test": {
			{"the reference by name", map[string]string{"suites/catalog/a.go": goFile("catalog", "~/reference/picker")}, []string{"suites/catalog/a.go:2"}},
			{"an environment in a test file", map[string]string{"suites/conformance/a_test.go": goFile("conformance", "~/harness/env/virtual")}, nil}},
		"Kubernetes stays at the edge": {
			{"a client in the command line", map[string]string{"harness/cli/a.go": goFile("cli", "k8s.io/client-go/rest")}, []string{"harness/cli/a.go:2"}},
			{"one in the kind environment", map[string]string{"harness/env/kind/a.go": goFile("kind", "k8s.io/client-go/rest"),
				"harness/cli/a.go": goFile("cli", "~/harness/env/kind")}, nil}},
	} {
		row, ok := byName[name]
		if !ok {
			t.Errorf("no row %q", name)
		}
		delete(byName, name)
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) { try(t, importRule(row), trials...) })
	}
	for name := range byName {
		t.Errorf("row %q has no trial", name)
	}
}
