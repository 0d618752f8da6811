package lint

import (
	"errors"
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// mapOrderRule keeps the order of maps, which changes from run to run, out of the cores: no range over a map, and maps.Keys,
// maps.Values and maps.All only as the argument of slices.Sorted and its kin.
func mapOrderRule(t *tree) []problem {
	c := newTypeChecker(t)
	var out []problem
	for _, p := range sortedKeys(c.files) {
		if !matches(p, cores) {
			continue
		}
		c.check(p)
		for _, s := range c.files[p] {
			out = append(out, mapRanges(t, s, c.info)...)
			out = append(out, mapIterators(t, s)...)
		}
	}
	return out
}

func mapRanges(t *tree, s source, info *types.Info) []problem {
	var out []problem
	ast.Inspect(s.file, func(n ast.Node) bool {
		r, ok := n.(*ast.RangeStmt)
		if !ok {
			return true
		}
		if typ := info.TypeOf(r.X); typ != nil && isMap(typ) {
			out = append(out, t.problem(s, r.Pos(), "range over a map in a core: range over slices.Sorted(maps.Keys(m)), or keep a slice beside the map"))
		}
		return true
	})
	return out
}

func isMap(t types.Type) bool {
	if p, ok := t.(*types.TypeParam); ok {
		t = p.Constraint()
		if i, ok := t.Underlying().(*types.Interface); ok {
			for e := range i.EmbeddedTypes() {
				if isMap(elementOf(e)) {
					return true
				}
			}
		}
		return false
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// elementOf is the first term of a union such as ~map[K]V.
func elementOf(t types.Type) types.Type {
	if u, ok := t.(*types.Union); ok && u.Len() > 0 {
		return u.Term(0).Type()
	}
	return t
}

func mapIterators(t *tree, s source) []problem {
	imports := s.imports()
	sorted := map[ast.Node]bool{}
	var out []problem
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch p, name := selector(call.Fun, imports); {
		case p == "slices" && strings.HasPrefix(name, "Sorted"):
			for _, a := range call.Args {
				sorted[a] = true
			}
		case p == "maps" && slices.Contains([]string{"Keys", "Values", "All"}, name) && !sorted[call]:
			out = append(out, t.problem(s, call.Pos(), "maps.%s in a core gives the map's order: wrap it in slices.Sorted or slices.SortedFunc", name))
		}
		return true
	})
	return out
}

func selector(e ast.Expr, imports map[string]string) (importPath, name string) {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := sel.X.(*ast.Ident); ok && x.Obj == nil {
			return imports[x.Name], sel.Sel.Name
		}
	}
	return "", ""
}

// typeChecker types the packages of this module from source and takes all others for unknown. That is enough to know what is a
// map, unless a map comes out of a foreign package, and takes milliseconds instead of the seconds of a full check.
type typeChecker struct {
	tree  *tree
	files map[string][]source // package -> its files without tests
	done  map[string]*types.Package
	info  *types.Info
}

func newTypeChecker(t *tree) *typeChecker {
	c := &typeChecker{tree: t, files: map[string][]source{}, done: map[string]*types.Package{},
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}}
	for _, s := range t.goes {
		if !s.test {
			c.files[s.pkg()] = append(c.files[s.pkg()], s)
		}
	}
	return c
}

// Import makes the checker its own importer.
func (c *typeChecker) Import(p string) (*types.Package, error) {
	rel, own := strings.CutPrefix(p, module+"/")
	if !own || c.files[rel] == nil {
		return nil, errors.New("unknown on purpose")
	}
	return c.check(rel), nil
}

func (c *typeChecker) check(p string) *types.Package {
	if done, ok := c.done[p]; ok && done != nil {
		return done
	}
	var files []*ast.File
	for _, s := range c.files[p] {
		files = append(files, s.file)
	}
	conf := types.Config{Importer: c, Error: func(error) {}} // errors follow from the unknown packages
	pkg, _ := conf.Check(module+"/"+p, c.tree.fset, files, c.info)
	c.done[p] = pkg
	return pkg
}

func TestCoresDoNotDependOnMapOrder(t *testing.T) { check(t, mapOrderRule) }

func TestCoresDoNotDependOnMapOrderCanFail(t *testing.T) {
	try(t, mapOrderRule,
		trial{"a field of another package's type", map[string]string{
			"loadgen/plan/a.go":    "package plan\nimport (\n\"time\"\n\"" + module + "/harness/wire\"\n)\nvar d time.Duration\nfunc f(x wire.T) {\n\tfor range x.M {\n\t}\n}\n",
			"harness/wire/wire.go": "package wire\nimport \"time\"\ntype T struct{ M map[string]time.Duration }\n"}, []string{"loadgen/plan/a.go:8"}},
		trial{"a local variable of a named type", map[string]string{
			"reference/async/a.go": "package async\ntype m map[int]bool\nfunc f() {\n\tx := make(m)\n\tfor k := range x {\n\t\t_ = k\n\t}\n}\n"}, []string{"reference/async/a.go:5"}},
		trial{"a type parameter", map[string]string{
			"reference/async/a.go": "package async\nfunc f[M ~map[K]V, K comparable, V any](x M) {\n\tfor range x {\n\t}\n}\n"}, []string{"reference/async/a.go:3"}},
		trial{"unsorted keys", map[string]string{
			"reference/async/a.go": "package async\nimport \"maps\"\nfunc f(x map[int]int) {\n\tfor range maps.Keys(x) {\n\t}\n}\n"}, []string{"reference/async/a.go:4"}},
		trial{"sorted keys, a slice, a map in a driver", map[string]string{
			"reference/async/a.go": "package async\nimport (\n\"maps\"\n\"slices\"\n)\nfunc f(x map[int]int, y []int) {\n\tfor range slices.Sorted(maps.Keys(x)) {\n\t}\n\tfor range y {\n\t}\n}\n",
			"reference/epp/a.go":   "package epp\nfunc f(x map[int]int) {\n\tfor range x {\n\t}\n}\n"}, nil},
	)
}
