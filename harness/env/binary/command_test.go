package binary

import (
	"slices"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		says, text string
		want       []string
		err        string
	}{
		{"white space separates", " a\tb\n c ", []string{"a", "b", "c"}, ""},
		{"single quotes keep everything", `'a b' 'c\"'`, []string{"a b", `c\"`}, ""},
		{"double quotes keep all but escaped quotes", `"a \"b\" \\ \n"`, []string{`a "b" \ \n`}, ""},
		{"quotes may stand inside a word", `--a='b c'd`, []string{"--a=b cd"}, ""},
		{"an empty word", `a '' ""`, []string{"a", "", ""}, ""},
		{"a backslash keeps the next sign", `a\ b \'`, []string{"a b", "'"}, ""},
		{"nothing is expanded", `$HOME *.go ~ a|b`, []string{"$HOME", "*.go", "~", "a|b"}, ""},
		{"a placeholder may hold spaces and quotes", `--c={{ printf "%s x" .Config }}/é b`, []string{`--c={{ printf "%s x" .Config }}/é`, "b"}, ""},
		{"nothing", "  ", nil, ""},
		{"an open quote", `a 'b`, nil, "not closed"},
		{"a backslash at the end", `a \`, nil, "backslash"},
		{"an open placeholder", `{{.Config`, nil, "}}"},
	} {
		got, err := split(c.text)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", c.says, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q %v, want %q", c.says, got, err, c.want)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(`a 'b c' "d\"" {{.Config}} \ e`)
	f.Fuzz(func(t *testing.T, text string) {
		words, err := split(text)
		if err != nil {
			return
		}
		// What was split is found again if it is quoted.
		var quotedWords []string
		for _, w := range words {
			if strings.Contains(w, "{{") {
				return
			}
			quotedWords = append(quotedWords, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		again, err := split(strings.Join(quotedWords, " "))
		if err != nil || !slices.Equal(again, words) {
			t.Errorf("%q: %q, again %q %v", text, words, again, err)
		}
	})
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ says, text, err string }{
		{"every placeholder", "epp {{.Config}} {{.GRPCPort}} {{.HealthPort}} {{.MetricsPort}} {{.PoolName}} {{.PoolNamespace}} {{.Kubeconfig}} {{.EndpointsFile}} {{.ObjectivesFile}}", ""},
		{"an unknown placeholder names the known ones", "epp {{.GRPCPort}} {{.Port}}", "unknown placeholder: use {{.Config}}, {{.GRPCPort}}"},
		{"a function that does not exist", "epp {{.GRPCPort}} {{nope}}", "nope"},
		{"no way to reach it", "epp {{.Config}}", "must use {{.GRPCPort}}"},
		{"nothing", "", "empty"},
		{"an open quote", "epp '{{.GRPCPort}}", "not closed"},
	} {
		_, err := Parse(c.text)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", c.says, err, c.err)
		}
	}
	c, err := Parse(`./bin/epp 'x y' --port={{.GRPCPort}} --pool {{.PoolName}}`)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Uses("GRPCPort") || c.Uses("HealthPort") || c.Program() != "epp" {
		t.Errorf("uses %v, program %q", c.uses, c.Program())
	}
	argv, err := c.Argv(Values{GRPCPort: "1", PoolName: "a b"})
	if want := []string{"./bin/epp", "x y", "--port=1", "--pool", "a b"}; err != nil || !slices.Equal(argv, want) {
		t.Errorf("%q %v, want %q", argv, err, want)
	}
}

func TestOutputKeepsBothEnds(t *testing.T) {
	var o output
	write := func(text string) {
		if n, err := o.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("%d %v", n, err)
		}
	}
	write("begin ")
	if got := o.String(); got != "begin " {
		t.Errorf("%q", got)
	}
	for range 5 {
		write(strings.Repeat("a", outputEdge-1))
		write("0123456789")
	}
	write(strings.Repeat("b", 3*outputEdge) + "end\n")
	got := o.String()
	if !strings.HasPrefix(got, "begin aaa") || !strings.HasSuffix(got, "bbbend\n") || !strings.Contains(got, "bytes are not kept") || len(got) > 2*outputEdge+100 {
		t.Errorf("%d bytes: %q ... %q", len(got), got[:20], got[len(got)-20:])
	}
	if got := o.last(10); got != "… bbbbbbbend" {
		t.Errorf("the last: %q", got)
	}
}

func TestPorts(t *testing.T) {
	seen := map[int]bool{}
	for range 100 {
		p, err := FreePort()
		if err != nil || seen[p] || !free(p) {
			t.Fatalf("port %d: given before %v, free %v, %v", p, seen[p], free(p), err)
		}
		seen[p] = true
	}
}
