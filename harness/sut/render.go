package sut

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/profile"
)

// Render writes c as an EndpointPickerConfig document in the dialect of a contract. It is the same document that a foreign picker
// gets, so that the reference has no private way in.
func Render(c Configuration, d profile.Config) (string, error) {
	if c.Raw != "" {
		return c.Raw, nil
	}
	if c.Detector.Kind == "concurrency" && !d.ConcurrencyDetector {
		return "", &UnsupportedError{Feature: "concurrency-detector"}
	}
	var b strings.Builder
	w := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	w("apiVersion: %s", apiVersion(c, d))
	w("kind: EndpointPickerConfig")
	if !c.GateOff {
		w("featureGates: [flowControl]")
	}
	if c.Detector.Kind == "utilization" && d.Detector == "inline" {
		w("saturationDetector:")
		renderDetector(w, "  ", c.Detector)
	}
	renderPlugins(w, c, d)
	w("schedulingProfiles:")
	w("- name: default")
	w("  plugins:")
	if name := detectorPlugin(c.Detector); name != "" && d.Detector == "plugin" && !d.DetectorInProfile && !c.GateOff { // without the gate nobody keeps the pool below the limit
		w("  - pluginRef: %s", name)
	}
	w("  - pluginRef: %s", scorer(c))
	w("  - pluginRef: max-score-picker")
	renderFlowControl(w, c, d)
	return b.String(), nil
}

func detectorPlugin(d Detector) string {
	if d.Kind == "" {
		return ""
	}
	return d.Kind + "-detector"
}

func renderPlugins(w func(string, ...any), c Configuration, d profile.Config) {
	w("plugins:")
	if name := detectorPlugin(c.Detector); name != "" && d.Detector == "plugin" {
		w("- type: %s", name)
		w("  parameters:")
		renderDetector(w, "    ", c.Detector)
	}
	seen := map[string]bool{}
	for _, band := range c.allBands() {
		for _, ref := range []string{fairnessRef(band.Fairness), orderingRef(band.Ordering)} {
			if ref != "" && !seen[ref] {
				seen[ref] = true
				w("- type: %s", ref)
			}
		}
	}
	switch c.Ceiling.Kind {
	case "static":
		w("- type: static-usage-limit-policy")
		w("  parameters: {threshold: %v}", c.Ceiling.Threshold)
	case "holdback":
		w("- type: priority-holdback-policy")
		w("  parameters: {shape: linear, domain: %s, minCeiling: %v, maxCeiling: %v}", cmp.Or(c.Ceiling.Domain, "rank"), c.Ceiling.Min, c.Ceiling.Max)
	}
	if n := c.Detector.MaxOutput; n > 0 {
		w("- type: inflight-load-producer")
		w("  parameters: {addEstimatedOutputTokens: true, maxEstimatedOutputTokens: %d}", n)
	}
	if c.AgentIdentity {
		w("- type: agent-identity")
	}
	w("- type: %s", scorer(c))
	w("- type: max-score-picker")
}

func renderDetector(w func(string, ...any), indent string, d Detector) {
	if d.Kind == "concurrency" {
		w("%sconcurrencyMode: %s", indent, mode(d))
		if d.MaxTokens > 0 {
			w("%smaxTokenConcurrency: %d", indent, d.MaxTokens)
		}
		if d.MaxConcurrency > 0 {
			w("%smaxConcurrency: %d", indent, d.MaxConcurrency)
		}
	} else {
		w("%squeueDepthThreshold: %d", indent, d.QueueDepth)
		w("%skvCacheUtilThreshold: %v", indent, d.KVUtil)
		if d.Staleness > 0 {
			w("%smetricsStalenessThreshold: %s", indent, d.Staleness)
		}
	}
	if d.Headroom > 0 {
		w("%sheadroom: %v", indent, d.Headroom)
	}
}

// renderBand writes the settings of a band or of a template, without the priority.
func renderBand(w func(string, ...any), indent string, band Band) {
	if band.ZeroRequests {
		w("%smaxRequests: \"0\"", indent)
	}
	if band.MaxRequests > 0 {
		w("%smaxRequests: %q", indent, fmt.Sprint(band.MaxRequests))
	}
	if band.MaxBytes > 0 {
		w("%smaxBytes: %q", indent, fmt.Sprint(band.MaxBytes))
	}
	if ref := fairnessRef(band.Fairness); ref != "" {
		w("%sfairnessPolicyRef: %s", indent, ref)
	}
	if ref := orderingRef(band.Ordering); ref != "" {
		w("%sorderingPolicyRef: %s", indent, ref)
	}
}

func renderFlowControl(w func(string, ...any), c Configuration, d profile.Config) {
	w("flowControl:")
	if name := detectorPlugin(c.Detector); name != "" && d.Detector == "plugin" {
		w("  saturationDetector: {pluginRef: %s}", name)
	}
	if c.TTL > 0 {
		w("  defaultRequestTTL: %s", c.TTL)
	}
	if c.NoTTL {
		w("  defaultRequestTTL: 0s")
	}
	if c.NoEndpointTTL > 0 {
		w("  noEndpointRequestTTL: %s", c.NoEndpointTTL)
	}
	if c.MaxRequests > 0 {
		w("  maxRequests: %q", fmt.Sprint(c.MaxRequests))
	}
	if c.MaxBytes > 0 {
		w("  maxBytes: %q", fmt.Sprint(c.MaxBytes))
	}
	if c.Eviction {
		w("  enableEviction: true")
	}
	switch c.Ceiling.Kind {
	case "static":
		w("  usageLimitPolicyPluginRef: static-usage-limit-policy")
	case "holdback":
		w("  usageLimitPolicyPluginRef: priority-holdback-policy")
	}
	if c.DefaultBand != nil {
		w("  defaultPriorityBand:")
		renderBand(w, "    ", *c.DefaultBand)
	}
	if c.NegativeBand != nil {
		w("  defaultNegativePriorityBand:")
		renderBand(w, "    ", *c.NegativeBand)
	}
	if len(c.Bands) == 0 {
		return
	}
	w("  priorityBands:")
	for _, band := range c.Bands {
		w("  - priority: %d", band.Priority)
		renderBand(w, "    ", band)
	}
}

func apiVersion(c Configuration, d profile.Config) string {
	if c.APIVersion != "" {
		return c.APIVersion
	}
	return d.APIVersion
}

func mode(d Detector) string {
	if d.Mode == "" {
		return "requests"
	}
	return d.Mode
}

func scorer(c Configuration) string {
	if c.Scorer == "" {
		return "active-request-scorer"
	}
	return c.Scorer
}

func fairnessRef(name string) string {
	if name == "" {
		return ""
	}
	if name == "program-aware" {
		return "program-aware-fairness" // the one name without the suffix
	}
	return name + "-fairness-policy"
}

func orderingRef(name string) string {
	if name == "" {
		return ""
	}
	return name + "-ordering-policy"
}

// allBands are the bands and the templates.
func (c Configuration) allBands() []Band {
	all := slices.Clone(c.Bands)
	for _, t := range []*Band{c.DefaultBand, c.NegativeBand} {
		if t != nil {
			all = append(all, *t)
		}
	}
	return all
}
