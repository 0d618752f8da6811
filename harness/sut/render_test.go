package sut_test

import (
	"errors"
	"flag"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
)

var update = flag.Bool("update", false, "write the golden files")

// configurations are one of each kind that scenarios use; each is rendered for each profile.
var configurations = []struct {
	name string
	c    sut.Configuration
}{
	{"defaults", sut.Configuration{}},
	{"concurrency", sut.Configuration{TTL: time.Minute, Detector: sut.Detector{Kind: "concurrency", MaxConcurrency: 3, Headroom: 0.25}}},
	{"utilization", sut.Configuration{TTL: time.Minute, NoEndpointTTL: 2 * time.Second, Detector: sut.Detector{Kind: "utilization", QueueDepth: 5, KVUtil: 0.8, Staleness: 200 * time.Millisecond}}},
	{"everything", sut.Configuration{TTL: 1500 * time.Millisecond, MaxRequests: 3, MaxBytes: 1000, Eviction: true,
		Detector: sut.Detector{Kind: "utilization", QueueDepth: 2, KVUtil: 0.9}, Ceiling: sut.Ceiling{Kind: "holdback", Min: 0.5, Max: 1},
		Bands: []sut.Band{{Priority: 100, Fairness: "round-robin", Ordering: "slo-deadline", MaxRequests: 5}, {Priority: -10, Fairness: "round-robin", MaxBytes: 10}, {Priority: 0}}}},
	{"static-ceiling", sut.Configuration{Detector: sut.Detector{Kind: "utilization", QueueDepth: 5, KVUtil: 0.8}, Ceiling: sut.Ceiling{Kind: "static", Threshold: 0.5}}},
	{"raw", sut.Configuration{Raw: "as it is\n", Eviction: true}},
}

func TestRenderGoldens(t *testing.T) {
	for _, name := range profile.All() {
		p, err := profile.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range configurations {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				doc, err := sut.Render(c.c, p.Config)
				if c.c.Detector.Kind == "concurrency" && !p.Config.ConcurrencyDetector {
					var unsupported *sut.UnsupportedError
					if !errors.As(err, &unsupported) || doc != "" {
						t.Fatalf("a detector that the contract does not know: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				golden := filepath.Join("testdata", name+"-"+c.name+".yaml")
				if *update {
					if err := os.MkdirAll("testdata", 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(golden, []byte(doc), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatalf("%v (go test ./harness/sut -update writes it)", err)
				}
				if doc != string(want) {
					t.Errorf("%s:\n%s\nwant\n%s", golden, doc, want)
				}
				// What the golden only describes: limits of 0 are unset, every policy that is referred to is declared, once.
				for _, line := range strings.Split(doc, "\n") {
					if _, ref, ok := strings.Cut(line, "Ref: "); ok {
						ref = strings.TrimSuffix(ref, "}")
						if n := strings.Count(doc, "- type: "+ref+"\n"); n != 1 {
							t.Errorf("%s is referred to and declared %d times", ref, n)
						}
					}
				}
				if strings.Contains(doc, ": 0s") || strings.Contains(doc, `"0"`) {
					t.Error("a limit that is not set must be left out, not written as 0")
				}
			})
		}
	}
}

// A foreign picker reads the same document: whoever renders it must not know the reference, not even through others.
func TestRenderingDoesNotKnowTheReference(t *testing.T) {
	const module = "github.com/llm-weir/weir/"
	seen := map[string]bool{}
	todo := []string{"harness/sut"}
	for len(todo) > 0 {
		pkg := todo[0]
		todo = todo[1:]
		names, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pkg), "*.go"))
		if err != nil || len(names) == 0 {
			t.Fatalf("package %s: %v, %d files", pkg, err, len(names))
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				path, _ := strconv.Unquote(i.Path.Value)
				own, ok := strings.CutPrefix(path, module)
				if !ok || seen[own] {
					continue
				}
				seen[own] = true
				todo = append(todo, own)
				if strings.HasPrefix(own, "reference/") || strings.HasPrefix(own, "sim-vllm/") {
					t.Errorf("%s imports %s", name, own)
				}
			}
		}
	}
	if !seen["harness/profile"] {
		t.Error("the walk has gone blind: it did not even find harness/profile")
	}
}

func TestSupports(t *testing.T) {
	i := sut.Implementation{Features: []string{"hold"}}
	if !sut.Supports(i, sut.Hold) || sut.Supports(i, sut.Eviction) {
		t.Error("an implementation supports what it declares and nothing else")
	}
}
