package presets

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/sim-vllm/engine"
)

func TestEveryPresetMakesAnEngine(t *testing.T) {
	for _, name := range Names() {
		c, err := Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := engine.New(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownNameListsTheKnown(t *testing.T) {
	_, err := Get("b300")
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range Names() {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
}

// Published latency of batch 8, 32 tokens in, 128 out (spec/vllm.md §3.6 T1, 8B columns). The gate is 10%; the error is printed.
func TestPublishedBatchLatency(t *testing.T) {
	for name, want := range map[string]float64{"h100-llama3.1-8b": 997.5, "a100-llama3.1-8b": 1585.4} {
		c, err := Get(name)
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(c)
		if err != nil {
			t.Fatal(err)
		}
		for id := range uint64(8) {
			e.Step(0, engine.Event{Kind: engine.Admit, ID: id, PromptTokens: 32, MaxTokens: 128}, nil)
		}
		var last time.Duration
		for end, ok := e.Deadline(); ok; end, ok = e.Deadline() {
			last = end
			e.Step(end, engine.Event{}, nil)
		}
		got := float64(last) / float64(time.Millisecond)
		t.Logf("%s: %.0f ms, published %.0f ms, error %+.1f%%", name, got, want, 100*(got/want-1))
		if math.Abs(got/want-1) > 0.10 {
			t.Errorf("%s: off by more than 10%%", name)
		}
	}
}
