package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// module is the path in go.mod; packages are named relative to it.
const module = "github.com/llm-weir/weir"

// problem is one violation.
type problem struct {
	file string
	line int
	what string // what is wrong and how to fix it
}

func (p problem) String() string { return fmt.Sprintf("%s:%d: %s", p.file, p.line, p.what) }

// source is one Go file.
type source struct {
	path string // relative to the root, with slashes
	file *ast.File
	test bool
}

// pkg is the folder of a source, relative to the root; "." is the root.
func (s source) pkg() string { return path.Dir(s.path) }

// imports maps the local name of each import to its path. Names are the last element but for major versions, which is right for
// the standard library and all this module's packages.
func (s source) imports() map[string]string {
	m := map[string]string{}
	for _, i := range s.file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(p)
		if strings.HasPrefix(name, "v") && len(name) == 2 {
			name = path.Base(path.Dir(p))
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		m[name] = p
	}
	return m
}

// tree is the repository, or a sample of one.
type tree struct {
	fset  *token.FileSet
	files map[string][]byte // every file that git would see
	names []string          // keys of files, sorted
	goes  []source          // Go files outside testdata, sorted by path
	root  []string          // entries of the top folder
}

func (t *tree) line(pos token.Pos) int { return t.fset.Position(pos).Line }

func (t *tree) problem(s source, pos token.Pos, format string, args ...any) problem {
	return problem{s.path, t.line(pos), fmt.Sprintf(format, args...)}
}

// newTree parses files. A file that does not parse is a problem of its own, which the compiler words better.
func newTree(files map[string][]byte) *tree {
	t := &tree{fset: token.NewFileSet(), files: files}
	top := map[string]bool{}
	for name := range files {
		t.names = append(t.names, name)
		top[strings.SplitN(name, "/", 2)[0]] = true
	}
	slices.Sort(t.names)
	for name := range top {
		t.root = append(t.root, name)
	}
	slices.Sort(t.root)
	for _, name := range t.names {
		if !strings.HasSuffix(name, ".go") || strings.Contains("/"+name, "/testdata/") {
			continue
		}
		f, err := parser.ParseFile(t.fset, name, files[name], parser.ParseComments)
		if err == nil {
			t.goes = append(t.goes, source{name, f, strings.HasSuffix(name, "_test.go")})
		}
	}
	return t
}

// sample makes a tree of texts.
func sample(files map[string]string) *tree {
	m := map[string][]byte{}
	for k, v := range files {
		m[k] = []byte(v)
	}
	return newTree(m)
}

// repository loads the tree once for all rules.
var repository = sync.OnceValues(func() (*tree, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(root) == root {
			return nil, fmt.Errorf("no go.mod above the test")
		}
		root = filepath.Dir(root)
	}
	ignored, _ := os.ReadFile(filepath.Join(root, ".gitignore"))
	files := map[string][]byte{}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if rel == ".git" || ignores(string(ignored), rel, d.IsDir()) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		files[rel], err = os.ReadFile(p)
		return err
	})
	return newTree(files), err
})

// ignores understands the forms of .gitignore that this repository uses: /name, /name/ and a pattern for base names.
func ignores(patterns, rel string, dir bool) bool {
	for p := range strings.Lines(patterns) {
		p = strings.TrimSpace(p)
		if p == "" || strings.HasPrefix(p, "#") {
			continue
		}
		if strings.HasSuffix(p, "/") && !dir {
			continue
		}
		at := rel
		if !strings.HasPrefix(p, "/") {
			at = path.Base(rel)
		}
		if ok, _ := path.Match(strings.Trim(p, "/"), at); ok {
			return true
		}
	}
	return false
}

// text tells whether a file is text, by the absence of zero bytes, as git does.
func text(content []byte) bool { return bytes.IndexByte(content[:min(len(content), 8000)], 0) < 0 }

// rule is one rule of the repository.
type rule func(*tree) []problem

// check runs a rule over the repository.
func check(t *testing.T, r rule) {
	t.Helper()
	tr, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r(tr) {
		t.Error(p)
	}
}

// trial is a small tree and the places at which a rule must find fault; none: the tree keeps the rule.
type trial struct {
	why   string
	files map[string]string
	want  []string // file:line
}

// try shows that a rule can fail, and that it can hold.
func try(t *testing.T, r rule, trials ...trial) {
	t.Helper()
	fails, holds := false, false
	for _, c := range trials {
		var got []string
		for _, p := range r(sample(c.files)) {
			got = append(got, fmt.Sprintf("%s:%d", p.file, p.line))
		}
		slices.Sort(got)
		want := slices.Sorted(slices.Values(c.want))
		if !slices.Equal(slices.Compact(got), want) {
			t.Errorf("%s: found %v, want %v", c.why, got, want)
		}
		fails, holds = fails || len(want) > 0, holds || len(want) == 0
	}
	if !fails || !holds {
		t.Error("the trials must hold a tree that breaks the rule and one that keeps it")
	}
}
