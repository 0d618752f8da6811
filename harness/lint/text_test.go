package lint

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
	"testing"
)

// The words are put together here so that this file does not break its own rules.
var (
	unfinished = regexp.MustCompile(`\b(` + "TO" + "DO|" + "FIX" + "ME|" + "X" + "XX" + `)\b`)
	// A folder of some machine, where a path begins; the same word further inside a relative path is fine.
	machinePath = regexp.MustCompile(`(^|[^\w./~*-])/(` + "work|" + "root|" + "home" + `)/`)
	link        = regexp.MustCompile(`!?\[[^\]]*\]\(<?([^)\s>]+)>?[^)]*\)`)
	scheme      = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:`)
	requirement = regexp.MustCompile(`^(FC|AP|VL|LG|INV)(-[A-Z]+)*-[0-9]+[a-z]?$`)
)

// unfinishedRule bans notes to oneself, in comments of Go files and anywhere in other texts: what is missing goes to an issue.
func unfinishedRule(t *tree) []problem {
	const what = "unfinished note: do it, or open an issue and say here what holds today"
	var out []problem
	for _, s := range t.goes {
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				for i, l := range strings.Split(c.Text, "\n") {
					if unfinished.MatchString(l) {
						out = append(out, problem{s.path, t.line(c.Pos()) + i, what})
					}
				}
			}
		}
	}
	return append(out, eachLine(t, func(name string) bool {
		return !strings.HasSuffix(name, ".go") && !strings.Contains("/"+name, "/testdata/") && !strings.HasPrefix(name, "results/")
	}, func(_, l string) string {
		if unfinished.MatchString(l) {
			return what
		}
		return ""
	})...)
}

// machinePathRule bans paths that exist on one machine only.
func machinePathRule(t *tree) []problem {
	return eachLine(t, func(string) bool { return true }, func(_, l string) string {
		if m := machinePath.FindString(l); m != "" {
			return "path of one machine (" + strings.TrimLeft(m, " \"'`(=:") + "…): use a relative path or a variable"
		}
		return ""
	})
}

// linkRule wants every relative link of a Markdown file to lead somewhere inside the repository.
func linkRule(t *tree) []problem {
	folders := map[string]bool{".": true}
	for _, n := range t.names {
		for d := path.Dir(n); d != "."; d = path.Dir(d) {
			folders[d] = true
		}
	}
	inFence := ""
	return eachLine(t, func(name string) bool {
		return strings.HasSuffix(name, ".md") && !strings.Contains("/"+name, "/testdata/")
	},
		func(name, l string) string {
			if strings.HasPrefix(strings.TrimSpace(l), "```") {
				if inFence == name {
					inFence = ""
				} else {
					inFence = name
				}
			}
			if inFence == name {
				return ""
			}
			for _, m := range link.FindAllStringSubmatch(l, -1) {
				target, _, _ := strings.Cut(m[1], "#")
				if target == "" || scheme.MatchString(target) {
					continue
				}
				to := path.Join(path.Dir(name), target)
				if strings.HasPrefix(target, "/") {
					to = strings.TrimPrefix(path.Clean(target), "/")
				}
				if _, ok := t.files[to]; !ok && !folders[to] {
					return "the link to " + m[1] + " leads nowhere: there is no " + to
				}
			}
			return ""
		})
}

// eachLine calls find for every line of the chosen text files.
func eachLine(t *tree, choose func(name string) bool, find func(name, line string) string) []problem {
	var out []problem
	for _, name := range t.names {
		if !choose(name) || !text(t.files[name]) {
			continue
		}
		for i, l := range strings.Split(string(t.files[name]), "\n") {
			if what := find(name, l); what != "" {
				out = append(out, problem{name, i + 1, what})
			}
		}
	}
	return out
}

// requirementRule wants every requirement id that the suites cite to be defined in the catalogue. An id is defined by being the ID
// field of a literal, or the first of at least three values of one, as in {"FC-PRI-01", "core", "..."}.
func requirementRule(t *tree) []problem {
	defined := map[string]bool{}
	isDefinition := map[*ast.BasicLit]bool{}
	for _, s := range t.goes {
		if !matches(s.pkg(), []string{"suites/catalog/..."}) || s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if lit := definition(n); lit != nil {
				defined[id(lit)] = true
				isDefinition[lit] = true
			}
			return true
		})
	}
	known := len(defined) > 0
	var out []problem
	for _, s := range t.goes {
		// Without any definition a catalogue that cites ids is in a form that this rule cannot read, and must not pass unread; other
		// suites may come before the catalogue.
		if !matches(s.pkg(), []string{"suites/..."}) || !known && !matches(s.pkg(), []string{"suites/catalog/..."}) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if ok && !isDefinition[lit] && requirement.MatchString(id(lit)) && !defined[id(lit)] {
				out = append(out, t.problem(s, lit.Pos(), "requirement %s is not in suites/catalog: correct the id, or add the requirement", id(lit)))
			}
			return true
		})
	}
	return out
}

// definition is the literal in n that defines a requirement, if n is one.
func definition(n ast.Node) *ast.BasicLit {
	switch v := n.(type) {
	case *ast.KeyValueExpr:
		if k, ok := v.Key.(*ast.Ident); ok && k.Name == "ID" {
			return idLiteral(v.Value)
		}
	case *ast.CompositeLit:
		if len(v.Elts) >= 3 && idLiteral(v.Elts[1]) == nil {
			return idLiteral(v.Elts[0])
		}
	}
	return nil
}

func idLiteral(e ast.Expr) *ast.BasicLit {
	if lit, ok := e.(*ast.BasicLit); ok && requirement.MatchString(id(lit)) {
		return lit
	}
	return nil
}

// id is a string literal without its quotes.
func id(lit *ast.BasicLit) string { return strings.Trim(lit.Value, "\"`") }

func TestNothingIsLeftUnfinished(t *testing.T)     { check(t, unfinishedRule) }
func TestNoPathsOfOneMachine(t *testing.T)         { check(t, machinePathRule) }
func TestLinksLeadSomewhere(t *testing.T)          { check(t, linkRule) }
func TestSuitesCiteKnownRequirements(t *testing.T) { check(t, requirementRule) }

func TestNothingIsLeftUnfinishedCanFail(t *testing.T) {
	note := "TO" + "DO"
	try(t, unfinishedRule,
		trial{"in a comment, in a script", map[string]string{"a/a.go": "package a\n\n// " + note + " later\n", "hack/x.sh": "# " + note + "\n"},
			[]string{"a/a.go:3", "hack/x.sh:1"}},
		trial{"a word that the program looks for", map[string]string{"a/a.go": "package a\n\nvar x = \"" + note + "\"\n", "README.md": "mastodon " + strings.ToLower(note) + "\n"}, nil})
}

func TestNoPathsOfOneMachineCanFail(t *testing.T) {
	home, work := "/"+"home/", "/"+"work/"
	try(t, machinePathRule,
		trial{"quoted, bare, after an equals sign", map[string]string{"a.md": "see `" + home + "me/x`\n" + work + "x\n", "b.sh": "\nDIR=" + work + "y\n"},
			[]string{"a.md:1", "a.md:2", "b.sh:2"}},
		trial{"a part of a longer path, a URL, a binary", map[string]string{"a.md": "my" + work + "x https://x.example" + home + "y ." + work + "z\n",
			"b.bin": "\x00 " + home + "x"}, nil})
}

func TestLinksLeadSomewhereCanFail(t *testing.T) {
	try(t, linkRule,
		trial{"to a file that is not there, also as a picture", map[string]string{"hack/a.md": "[x](b.md)\n![y](../img/c.png \"title\")\n"},
			[]string{"hack/a.md:1", "hack/a.md:2"}},
		trial{"to a file, a folder, an anchor, the web, and inside a block", map[string]string{"hack/a.md": "[x](../README.md#top) [y](.) [z](#z) [w](https://x.example)\n```\n[v](nowhere)\n```\n",
			"README.md": "[h](hack/) [i](/hack/a.md)\n"}, nil})
}

func TestSuitesCiteKnownRequirementsCanFail(t *testing.T) {
	catalogue := "package catalog\n\nvar rs = []R{{ID: \"FC-PRI-01\", Level: \"core\"}, {\"FC-REF-02\", \"core\", \"text\"}}\n\nvar sc = S{Requirements: []string{\"FC-PRI-01\", \"FC-REF-02\", \"FC-REF-02\"}}\n"
	try(t, requirementRule,
		trial{"a typing error", map[string]string{"suites/catalog/a.go": catalogue, "suites/conformance/b.go": "package c\n\nvar x = \"FC-PRI-10\"\n"}, []string{"suites/conformance/b.go:3"}},
		trial{"in the catalogue itself", map[string]string{"suites/catalog/a.go": catalogue + "var y = []string{\"FC-XYZ-01\", \"FC-PRI-01\", \"FC-PRI-01\"}\n"}, []string{"suites/catalog/a.go:6"}},
		trial{"a catalogue in another form", map[string]string{"suites/catalog/a.go": "package catalog\n\nvar x = req(\"FC-PRI-01\")\n"}, []string{"suites/catalog/a.go:3"}},
		trial{"all known", map[string]string{"suites/catalog/a.go": catalogue, "suites/conformance/b.go": "package c\n\nvar x = \"FC-PRI-01\"\n"}, nil},
		trial{"no catalogue yet", map[string]string{"suites/conformance/b.go": "package c\n\nvar x = \"FC-PRI-10\"\n"}, nil})
}
