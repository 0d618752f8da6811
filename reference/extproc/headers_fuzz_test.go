package extproc

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/llm-weir/weir/harness/wire"
)

// FuzzHeaders reads any list of headers, one per line as name=value, values raw behind "=" and plain behind "~", and holds what must be
// true of all: there is an identity, names match in any case, the last value counts but for the request id, of an unusable target
// nothing is left, and no control header survives unless it is the destination.
func FuzzHeaders(f *testing.F) {
	f.Add("x-llm-d-inference-fairness-id=a\nX-LLM-D-Inference-Fairness-ID=b")
	f.Add("x-llm-d-slo-ttft-ms=9223372036854775807\nx-slo-ttft-ms~5")
	f.Add("x-llm-d-inference-objective=\nx-gateway-inference-objective=high\nx-request-id=1\nx-request-id=2")
	f.Add(":path=/v1/chat/completions?x=y\n=\n~\nx-gateway-destination-endpoint=\xff\xfe")
	f.Fuzz(func(t *testing.T, text string) {
		m := &corev3.HeaderMap{}
		last := map[string]string{}
		for line := range strings.SplitSeq(text, "\n") {
			h := &corev3.HeaderValue{}
			if name, value, ok := strings.Cut(line, "="); ok {
				h.Key, h.RawValue = name, []byte(value)
			} else {
				h.Key, h.Value, _ = strings.Cut(line, "~")
			}
			m.Headers = append(m.Headers, h)
			name := strings.ToLower(h.Key)
			if _, seen := last[name]; !seen || name != wire.HeaderRequestID {
				last[name] = h.Value + string(h.RawValue)
			}
		}
		h := ReadHeaders(m)
		if len(h) != len(last) {
			t.Fatalf("%d names, %d read", len(last), len(h))
		}
		for name, v := range last {
			if h[name] != v {
				t.Fatalf("%q reads %q, the value that counts is %q", name, h[name], v)
			}
		}
		id := NewClassifier(ClassifierOptions{SessionHeaders: []string{"session-id"}})(h)
		if id.FairnessID == "" {
			t.Fatal("no fairness id")
		}
		if v, ok := h[wire.HeaderFairnessID]; ok && v != "" && id.FairnessID != v {
			t.Fatalf("the canonical fairness id is %q, not %q", v, id.FairnessID)
		}
		if v, ok := h[wire.HeaderObjective]; ok && id.Objective != v {
			t.Fatalf("the canonical objective is %q, not %q", v, id.Objective)
		}
		if id.TTFT < 0 || !id.HasTTFT && id.TTFT != 0 || id.TTFT%time.Millisecond != 0 {
			t.Fatalf("target %v, %v", id.TTFT, id.HasTTFT)
		}
		for _, name := range controlHeaders(m) {
			if name == wire.HeaderDestination || !slices.Contains(wire.ControlHeaders, name) {
				t.Fatalf("%q is removed", name)
			}
		}
		if p := h.Path(); strings.Contains(p, "?") || p == "" && h[":path"] == "" {
			t.Fatalf("path %q", p)
		}
	})
}
