package sut_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
)

func TestPresets(t *testing.T) {
	if got := sut.Presets(); !slices.Equal(got, []string{"generic-extproc", "llm-d-router"}) {
		t.Errorf("presets: %v", got)
	}
	for _, name := range sut.Presets() {
		d, err := sut.ReadDescriptor(name)
		if err != nil || d.Project != name || len(d.Features) == 0 {
			t.Errorf("%s: %+v %v", name, d, err)
		}
	}
}

func TestReadDescriptor(t *testing.T) {
	for _, c := range []struct{ says, text, err string }{
		{"everything", "organization: o\nproject: p\nversion: v1\nurl: https://x.example\ncontact: [a]\ncommand: epp {{.GRPCPort}}\nfeatures: [hold]\n" +
			"startLimit: 30s\ntolerances: {ttlLate: 2s}\n", ""},
		{"nothing", "", "EOF"},
		{"an unknown field, with its line", "project: p\nprojct: q\n", "sut.yaml:2: field projct not found"},
		{"an unknown feature", "features: [hold, flying]\n", `unknown feature "flying"`},
		{"no duration", "startLimit: soon\n", "sut.yaml:1"},
		{"a negative tolerance", "tolerances: {slack: -1s}\n", "tolerances.slack: must not be negative"},
	} {
		file := filepath.Join(t.TempDir(), "sut.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := sut.ReadDescriptor(file)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", c.says, err, c.err)
		}
	}
	for name, want := range map[string]string{"nonsense": "llm-d-router", "./nowhere.yaml": "no such file"} {
		if _, err := sut.ReadDescriptor(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTolerancesOfADescriptor(t *testing.T) {
	p, err := profile.Named(profile.Default)
	if err != nil {
		t.Fatal(err)
	}
	was := p.Tolerances
	sut.Descriptor{Tolerances: profile.Tolerances{TTLLate: 7 * time.Second}}.Apply(&p)
	if p.Tolerances.TTLLate != 7*time.Second || p.Tolerances.Slack != was.Slack || p.Tolerances.Staleness != was.Staleness {
		t.Errorf("%+v", p.Tolerances)
	}
}
