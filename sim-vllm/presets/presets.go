// Package presets is the closed list of GPU and model pairs that the simulator can be, as data.
//
//	name --Get--> engine.Config
//
// Where the numbers come from. Time coefficients: spec/vllm.md §3.4, composed from the vLLM kernel timings that AIConfigurator
// publishes (NVIDIA, Apache-2.0); its GEMM cost per token is multiplied by 1.1 for element-wise work, and the all-reduce
// cost is the line through its values at 1 and 2048 tokens. The rtx4090 preset is fitted to a recorded vLLM 0.19 run of LLMServingSim
// (MIT), spec/vllm.md §3.3. Cache sizes: the anchors at the end of §3.4 where there is one, else memory x 0.92 - weights -
// 1.5 GiB per GPU. Scheduler limits: vLLM's defaults for the memory class, §2.1.
//
// They are priors, not measurements on your GPU: §3.6 finds them within 3% to 9% of published 8B latencies without tuning, and
// further off for larger models. A result that depends on the absolute numbers has to say so.
package presets

import (
	"fmt"
	"strings"

	"github.com/llm-weir/weir/sim-vllm/engine"
)

// Instant is the preset for tests of everything but time: a step takes a microsecond and nothing is ever short.
const Instant = "instant"

const (
	usec = 1e3 // ns
	msec = 1e6 // ns
)

// limits are the scheduler defaults of a memory class.
type limits struct{ seqs, batchedTokens int }

var (
	large = limits{1024, 8192} // H100, H200
	small = limits{256, 2048}  // under 70 GiB, and A100
)

type preset struct {
	name   string
	limits limits
	blocks int // of 16 tokens
	maxLen int // tokens
	step   engine.StepTime
}

var all = []preset{
	{"h100-llama3.1-8b", large, 29205, 131072, engine.StepTime{Base: 1 * msec, PerSeq: 30 * usec, Weights: 5.77 * msec,
		PerToken: 1.1 * 17.3 * usec, Attention: 0.42 * msec, PerContext: 41.4, PrefillAttention: 1.0}},
	{"h100-qwen3-32b-tp2", large, 20600, 40960, engine.StepTime{Base: 1 * msec, PerSeq: 30 * usec, Weights: 12.5 * msec,
		PerToken: 1.1 * 41.1 * usec, Attention: 0.81 * msec, PerContext: 42.7, PrefillAttention: 2.0,
		AllReduce: 0.554 * msec, AllReducePerToken: 5.98 * usec}},
	{"a100-llama3.1-8b", small, 29205, 131072, engine.StepTime{Base: 1 * msec, PerSeq: 30 * usec, Weights: 10.1 * msec,
		PerToken: 1.1 * 50.9 * usec, Attention: 0.6 * msec, PerContext: 72.8, PrefillAttention: 3.4}},
	{"l40s-llama3.1-8b", small, 12700, 131072, engine.StepTime{Base: 1 * msec, PerSeq: 30 * usec, Weights: 21.9 * msec,
		PerToken: 1.1 * 68.3 * usec, Attention: 0.4 * msec, PerContext: 180, PrefillAttention: 2.96}},
	{"rtx4090-llama3.1-8b", small, 2588, 32768, engine.StepTime{Base: 1 * msec, PerSeq: 30 * usec, Weights: 16.5 * msec,
		PerToken: 88.5 * usec, PerContext: 148, PrefillAttention: 4.0}},
	{Instant, limits{4096, 1 << 20}, 1 << 20, 1 << 20, engine.StepTime{Base: 1 * usec}},
}

// Get is the engine configuration of a preset.
func Get(name string) (engine.Config, error) {
	for _, p := range all {
		if p.name == name {
			return engine.Config{
				MaxNumSeqs: p.limits.seqs, MaxNumBatchedTokens: p.limits.batchedTokens,
				BlockSize: 16, NumBlocks: p.blocks, MaxModelLen: p.maxLen, Step: p.step,
			}, nil
		}
	}
	return engine.Config{}, fmt.Errorf("unknown preset %q, known are %s", name, strings.Join(Names(), ", "))
}

// Names lists the presets in the order of the table.
func Names() []string {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.name
	}
	return names
}
