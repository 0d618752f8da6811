package checks

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
)

// series: at sample step Mark each of Names shows exactly Series (matched by label subset; nothing else above zero unless Mode is "each": then every series that matches must read its value), and at sample
// step Zero all of them read 0 or are gone. Engaged if the page was read and Waiting were pending then.
func series(s Spec, r *evidence.Run) finding {
	m, f := mark(r, s.Mark)
	if f != nil {
		return *f
	}
	if !m.OK {
		return notEngaged("the router's metrics page could not be read: " + m.Detail)
	}
	if why, id := allPending(r, s.Waiting, m.End); why != "" {
		return notEngaged(why, id)
	}
	if len(s.Names) == 0 || len(s.Series) == 0 {
		return notEngaged("no metric name, or no series to expect")
	}
	for _, name := range s.Names {
		if f := seriesAt(s, r, name); f != nil {
			return *f
		}
	}
	if s.Zero != "" {
		if z, ok := r.StepByMark(s.Zero); !ok || !z.OK || !laterPage(r, s.Zero, m.End) {
			return notEngaged("the router's metrics page could not be read after draining")
		}
		for _, name := range s.Names {
			for _, sm := range r.Samples {
				if sm.Mark == s.Zero && sm.Source == "router" && sm.Name == name && sm.Value != 0 {
					return fail(fmt.Sprintf("%s = %v after draining", name, sm.Value), fmt.Sprintf("expected 0 for %v", labelText(sm.Labels)), s.Waiting...)
				}
			}
		}
	}
	return pass(fmt.Sprintf("%d series under %d names", len(s.Series), len(s.Names)), fmt.Sprintf("%d pending", len(s.Waiting)), s.Waiting...)
}

func seriesAt(s Spec, r *evidence.Run, name string) *finding {
	found := false
	sums := make([]float64, len(s.Series))
	hits := make([]int, len(s.Series))
	for _, sm := range r.Samples {
		if sm.Mark != s.Mark || sm.Source != "router" || sm.Name != name {
			continue
		}
		found = true
		hit := false
		for i, want := range s.Series {
			if subset(want.Labels, sm.Labels) {
				sums[i] += sm.Value
				hits[i]++
				hit = true
				if s.Mode == "each" && !(math.Abs(sm.Value-want.Value) <= s.Margin) {
					f := fail(fmt.Sprintf("%s = %v", labelText(sm.Labels), sm.Value), fmt.Sprintf("expected %v ± %v for %s%s", want.Value, s.Margin, name, labelText(sm.Labels)))
					return &f
				}
			}
		}
		if !hit && sm.Value != 0 && s.Mode != "each" {
			f := fail(fmt.Sprintf("unexpected series of %s", name), fmt.Sprintf("%s reads %v, nothing of the kind is waiting", labelText(sm.Labels), sm.Value))
			return &f
		}
	}
	if !found {
		f := fail(name+" is missing", "the metrics page shows no series of that name")
		return &f
	}
	for i, want := range s.Series {
		if hits[i] == 0 {
			f := fail(labelText(want.Labels)+" is missing", fmt.Sprintf("expected %v for %s%s", want.Value, name, labelText(want.Labels)))
			return &f
		}
		if s.Mode == "each" {
			continue
		}
		// Negated, because a value that is no number is never inside the margin.
		if !(math.Abs(sums[i]-want.Value) <= s.Margin) {
			f := fail(fmt.Sprintf("%s = %v", labelText(want.Labels), sums[i]), fmt.Sprintf("expected %v ± %v for %s%s", want.Value, s.Margin, name, labelText(want.Labels)))
			return &f
		}
	}
	return nil
}

func subset(want, have map[string]string) bool {
	for k, v := range want {
		if have[k] != v && !(slices.Contains(endpointLabels, k) && have[k] == v+firstRank) {
			return false
		}
	}
	return true
}

// Labels whose value is an endpoint. A router that knows its endpoints from Kubernetes names them by pod and by the place of the port in
// the pool, which has one port (spec/endpoint-picker.md §9).
var endpointLabels = []string{"model_server_endpoint", "model_server_pod"}

const firstRank = "-rank-0"

func labelText(m map[string]string) string {
	var parts []string
	for _, k := range sortedKeys(m) {
		parts = append(parts, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// body: each of IDs reaches a model server with the bytes that were sent (Mode "bytes") or with the same JSON value (Mode "json",
// against Hashes).
func body(s Spec, r *evidence.Run) finding {
	total := int64(0)
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		b, ok := arrival(r, id)
		if !ok {
			return notEngaged(fmt.Sprintf("%s was not served (%s)", id, answer(c)), id)
		}
		switch s.Mode {
		case "bytes":
			if c.BodySHA256 == "" {
				return notEngaged(id+" was sent without a hash of its body", id)
			}
			if b.BodySHA256 != c.BodySHA256 {
				return fail(id+" changed", fmt.Sprintf("%d bytes were sent, %d arrived, and they differ", c.RequestBytes, b.Bytes), id)
			}
		case "json":
			if s.Hashes[id] == "" {
				return notEngaged("the JSON value of "+id+" is not known", id)
			}
			if b.JSONSHA256 != s.Hashes[id] {
				return fail(id+" changed", "the JSON value that arrived is not the one that was sent", id)
			}
		default:
			return notEngaged("unknown comparison " + s.Mode)
		}
		total += c.RequestBytes
	}
	if len(s.IDs) == 0 {
		return notEngaged("no request to look at")
	}
	return pass(fmt.Sprintf("%d bodies, %d bytes, equal (%s)", len(s.IDs), total, s.Mode), "all served", s.IDs...)
}
