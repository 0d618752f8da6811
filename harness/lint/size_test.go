package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// Limits for Go files that are no tests. There is no list of exceptions.
const (
	fileLines     = 500
	functionLines = 90
)

func fileSizeRule(t *tree) []problem {
	var out []problem
	for _, s := range t.goes {
		if n := bytes.Count(t.files[s.path], []byte("\n")); !s.test && n > fileLines {
			out = append(out, problem{s.path, n, fmt.Sprintf("%d lines, at most %d: split it by noun", n, fileLines)})
		}
	}
	return out
}

func functionSizeRule(t *tree) []problem {
	var out []problem
	for _, s := range t.goes {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || s.test {
				continue
			}
			if n := t.line(f.End()) - t.line(f.Pos()) + 1; n > functionLines {
				out = append(out, t.problem(s, f.Pos(), "function %s has %d lines, at most %d: name its parts and call them", f.Name.Name, n, functionLines))
			}
		}
	}
	return out
}

// initRule bans init functions: what runs before main is invisible where it matters.
func initRule(t *tree) []problem {
	var out []problem
	for _, s := range t.goes {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "init" && f.Recv == nil {
				out = append(out, t.problem(s, f.Pos(), "init function: call it from main, or compute the variable where it is declared"))
			}
		}
	}
	return out
}

// packageDocRule wants a comment on every package, in one of its files.
func packageDocRule(t *tree) []problem {
	first, documented := map[string]source{}, map[string]bool{}
	for _, s := range t.goes {
		if _, ok := first[s.pkg()]; !ok {
			first[s.pkg()] = s
		}
		if s.file.Doc != nil && strings.TrimSpace(s.file.Doc.Text()) != "" {
			documented[s.pkg()] = true
		}
	}
	var out []problem
	for _, p := range sortedKeys(first) {
		if !documented[p] {
			out = append(out, t.problem(first[p], first[p].file.Package, "package %s has no comment: say its job in one sentence above a package clause", p))
		}
	}
	return out
}

// packageNameRule bans folders and packages whose name says nothing.
func packageNameRule(t *tree) []problem {
	var out []problem
	for _, s := range t.goes {
		if slices.Contains(emptyNames, s.file.Name.Name) || slices.Contains(emptyNames, path.Base(s.pkg())) {
			out = append(out, t.problem(s, s.file.Package, "package named %q: name it after what it holds", s.file.Name.Name))
		}
	}
	return out
}

func topLevelRule(t *tree) []problem {
	var out []problem
	for _, name := range t.root {
		if !strings.HasPrefix(name, ".") && !slices.Contains(topLevel, name) {
			out = append(out, problem{name, 1, "does not belong in the top folder, whose entries are prescribed: move it, or ignore it in .gitignore"})
		}
	}
	return out
}

func TestFilesAreShort(t *testing.T)         { check(t, fileSizeRule) }
func TestFunctionsAreShort(t *testing.T)     { check(t, functionSizeRule) }
func TestNothingRunsBeforeMain(t *testing.T) { check(t, initRule) }
func TestPackagesSayTheirJob(t *testing.T)   { check(t, packageDocRule) }
func TestPackageNamesMean(t *testing.T)      { check(t, packageNameRule) }
func TestTopFolder(t *testing.T)             { check(t, topLevelRule) }

func TestFilesAreShortCanFail(t *testing.T) {
	long := "package a\n" + strings.Repeat("// line\n", fileLines)
	try(t, fileSizeRule,
		trial{"one line too many", map[string]string{"a/a.go": long}, []string{"a/a.go:501"}},
		trial{"a long test, a long script, a file at the limit", map[string]string{"a/a_test.go": long, "a/testdata/x.go": long, "a/b.go": long[:len(long)-8]}, nil})
}

func TestFunctionsAreShortCanFail(t *testing.T) {
	body := strings.Repeat("\tf()\n", functionLines-1)
	try(t, functionSizeRule,
		trial{"one line too many", map[string]string{"a/a.go": "package a\n\nfunc f() {\n" + body + "}\n"}, []string{"a/a.go:3"}},
		trial{"at the limit", map[string]string{"a/a.go": "package a\n\nfunc f() {\n" + body[5:] + "}\n"}, nil})
}

func TestNothingRunsBeforeMainCanFail(t *testing.T) {
	try(t, initRule,
		trial{"also in tests", map[string]string{"a/a_test.go": "package a\nfunc init() {}\n"}, []string{"a/a_test.go:2"}},
		trial{"a method of that name", map[string]string{"a/a.go": "package a\nfunc (t T) init() {}\n"}, nil})
}

func TestPackagesSayTheirJobCanFail(t *testing.T) {
	try(t, packageDocRule,
		trial{"none of two files", map[string]string{"a/a.go": "package a\n", "a/b.go": "// detached\n\npackage a\n"}, []string{"a/a.go:1"}},
		trial{"one of two files", map[string]string{"a/a.go": "package a\n", "a/b.go": "// Package a does it.\npackage a\n"}, nil})
}

func TestPackageNamesMeanCanFail(t *testing.T) {
	try(t, packageNameRule,
		trial{"by clause and by folder", map[string]string{"a/a.go": "package util\n", "helpers/b.go": "package b\n"}, []string{"a/a.go:1", "helpers/b.go:1"}},
		trial{"a meaning name", map[string]string{"a/a.go": "package utilization\n"}, nil})
}

func TestTopFolderCanFail(t *testing.T) {
	try(t, topLevelRule,
		trial{"a folder of habit", map[string]string{"pkg/a.go": "package a\n", "go.mod": ""}, []string{"pkg:1"}},
		trial{"the prescribed ones and dot-files", map[string]string{"harness/a.go": "", "Makefile": "", ".github/x.yml": ""}, nil})
}
