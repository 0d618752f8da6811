package lint

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	workflowRun = regexp.MustCompile(`^\s*(?:- )?run:\s*(.*)$`)
	workflowUse = regexp.MustCompile(`^\s*(?:- )?uses:\s*(\S+)\s*$`)
	makeTarget  = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	assignment  = regexp.MustCompile(`^[A-Z_]+=`)
	pinnedUse   = regexp.MustCompile(`@(v[0-9][0-9.]*|[0-9a-f]{40})$`)
)

// workflowRule lets workflows call nothing but targets of the Makefile, so that what they do can be done anywhere, and wants actions of a
// version.
func workflowRule(t *tree) []problem {
	var targets []string
	for _, m := range makeTarget.FindAllStringSubmatch(string(t.files["Makefile"]), -1) {
		targets = append(targets, m[1])
	}
	return eachLine(t, func(name string) bool { return strings.HasPrefix(name, ".github/workflows/") }, func(_, l string) string {
		if m := workflowUse.FindStringSubmatch(l); m != nil && !pinnedUse.MatchString(m[1]) {
			return "action " + m[1] + " has no version: add @v4 or a commit"
		}
		m := workflowRun.FindStringSubmatch(l)
		if m == nil {
			return ""
		}
		words := strings.Fields(m[1])
		if len(words) < 2 || words[0] != "make" {
			return "a workflow runs " + m[1] + ": make a target of it"
		}
		for _, w := range words[1:] {
			if !assignment.MatchString(w) && !slices.Contains(targets, w) {
				return "the Makefile has no target " + w
			}
		}
		return ""
	})
}

func TestWorkflowsCallTargets(t *testing.T) { check(t, workflowRule) }

func TestWorkflowsCallTargetsCanFail(t *testing.T) {
	makefile := "test: build ## x\n\tgo test\n"
	try(t, workflowRule,
		trial{"a script, a block, a target that is not there, an action of any version", map[string]string{"Makefile": makefile,
			".github/workflows/a.yml": "- run: ./x.sh\n- run: |\n    make test\n  run: make tests\n- uses: actions/checkout@main\n- run: make go\n"},
			[]string{".github/workflows/a.yml:1", ".github/workflows/a.yml:2", ".github/workflows/a.yml:4", ".github/workflows/a.yml:5", ".github/workflows/a.yml:6"}},
		trial{"targets, with settings", map[string]string{"Makefile": makefile,
			".github/workflows/a.yml": "- uses: actions/checkout@v4\n- run: make test FUZZTIME=5s\n  run: make test OVERLAY=gpu\n"}, nil})
}
