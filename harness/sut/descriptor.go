package sut

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/profile"
)

// Descriptor is who a router is, what it declares to support and how it is started.
type Descriptor struct {
	Implementation `yaml:",inline"`
	// Command starts it: a command line with placeholders ("" where the caller has one).
	Command string `yaml:"command"`
	// TLS says that it serves ext_proc with TLS; its certificate is not looked at.
	TLS bool `yaml:"tls"`
	// StartLimit is how long it may take to become ready; 0: the environment's.
	StartLimit time.Duration `yaml:"startLimit"`
	// Tolerances replace those of the profile where they are set; the checks of the bundle hold what they came to.
	Tolerances profile.Tolerances `yaml:"tolerances"`
	// Running says where one is that already runs; nil: Command starts it.
	Running *Running `yaml:"running,omitempty"`
}

//go:embed presets/*.yaml
var presets embed.FS

// Presets are the descriptors that need no file.
func Presets() []string {
	entries, err := presets.ReadDir("presets")
	if err != nil {
		panic(fmt.Sprintf("embedded presets: %v", err)) // they are part of the program
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return out
}

// Features are all that a router may declare.
func Features() []Feature {
	return []Feature{Hold, Restart, ScaleToZero, Objectives, Metrics, Subset, Holdback, Eviction, Stages, KubeAPI, LargeBodies}
}

// ReadDescriptor reads a preset by its name, or a file.
func ReadDescriptor(name string) (Descriptor, error) {
	if slices.Contains(Presets(), name) {
		text, err := presets.ReadFile("presets/" + name + ".yaml")
		if err != nil {
			return Descriptor{}, err
		}
		return parseDescriptor(name, text)
	}
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) && path.Base(name) == name && path.Ext(name) == "" {
		return Descriptor{}, fmt.Errorf("descriptor %q: neither a file nor one of %s", name, strings.Join(Presets(), ", "))
	}
	if err != nil {
		return Descriptor{}, fmt.Errorf("descriptor: %w", err)
	}
	return parseDescriptor(name, text)
}

func parseDescriptor(name string, text []byte) (Descriptor, error) {
	var d Descriptor
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	var typed *yaml.TypeError
	switch err := dec.Decode(&d); {
	case errors.As(err, &typed):
		var errs []error
		for _, e := range typed.Errors {
			line, what, _ := strings.Cut(strings.TrimPrefix(e, "line "), ": ")
			what, _, _ = strings.Cut(what, " in type ")
			errs = append(errs, fmt.Errorf("%s:%s: %s", name, line, what))
		}
		return d, errors.Join(errs...)
	case err != nil:
		return d, fmt.Errorf("%s: %w", name, err)
	}
	var errs []error
	for _, f := range d.Features {
		if !slices.Contains(Features(), Feature(f)) {
			errs = append(errs, fmt.Errorf("%s: features: unknown feature %q, known are %v", name, f, Features()))
		}
	}
	for what, v := range map[string]time.Duration{"startLimit": d.StartLimit, "tolerances.ttlLate": d.Tolerances.TTLLate, "tolerances.slack": d.Tolerances.Slack,
		"tolerances.staleness": d.Tolerances.Staleness} {
		if v < 0 {
			errs = append(errs, fmt.Errorf("%s: %s: must not be negative, got %s", name, what, v))
		}
	}
	if d.Running != nil {
		if err := d.Running.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return d, errors.Join(errs...)
}

// Apply replaces tolerances of a profile by those that the descriptor sets.
func (d Descriptor) Apply(p *profile.Profile) {
	for _, t := range []struct {
		from time.Duration
		to   *time.Duration
	}{{d.Tolerances.TTLLate, &p.Tolerances.TTLLate}, {d.Tolerances.Slack, &p.Tolerances.Slack}, {d.Tolerances.Staleness, &p.Tolerances.Staleness}} {
		if t.from > 0 {
			*t.to = t.from
		}
	}
}
