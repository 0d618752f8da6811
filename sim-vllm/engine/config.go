package engine

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Config is one model on one server. Names are vLLM's.
type Config struct {
	// MaxNumSeqs bounds the running requests. More of them raise throughput and slow each one.
	MaxNumSeqs int
	// MaxNumBatchedTokens is the token budget of a step. A larger one shortens prefill and lengthens the steps that decoders share.
	MaxNumBatchedTokens int
	// BlockSize is the tokens of one KV block.
	BlockSize int
	// NumBlocks is the KV cache in blocks; one of them is the reserved null block.
	NumBlocks int
	// MaxModelLen is the most tokens, prompt and output, of one request. It must fit the cache, as vLLM demands at startup, so that
	// a request alone can always proceed.
	MaxModelLen int
	// LongPrefillTokenThreshold caps one prefill chunk in tokens; 0: no cap.
	LongPrefillTokenThreshold int
	// AdmitByChunk is scheduler_reserve_full_isl=false: a waiting request needs free blocks for its first chunk only. The default
	// asks for blocks for the whole prompt, which preempts less.
	AdmitByChunk bool
	// Step is the time model.
	Step StepTime
	// Seed names the random stream of a run. The model draws nothing at present; it is part of the configuration so that the
	// identity of a run does not change when it does.
	Seed uint64
}

// Validate reports every fault of the configuration at once.
func (c Config) Validate() error {
	var errs []error
	atLeast := func(name string, got, least int) {
		if got < least {
			errs = append(errs, fmt.Errorf("%s is %d, must be at least %d", name, got, least))
		}
	}
	atLeast("MaxNumSeqs", c.MaxNumSeqs, 1)
	atLeast("MaxNumBatchedTokens", c.MaxNumBatchedTokens, max(1, c.MaxNumSeqs))
	atLeast("BlockSize", c.BlockSize, 1)
	atLeast("NumBlocks", c.NumBlocks, 2)
	atLeast("MaxModelLen", c.MaxModelLen, 2)
	atLeast("LongPrefillTokenThreshold", c.LongPrefillTokenThreshold, 0)
	if c.BlockSize >= 1 && c.MaxModelLen >= 2 {
		if need := ceilDiv(c.MaxModelLen, c.BlockSize); need > c.NumBlocks-1 {
			errs = append(errs, fmt.Errorf("MaxModelLen of %d tokens needs %d blocks of %d, but NumBlocks %d leaves %d",
				c.MaxModelLen, need, c.BlockSize, c.NumBlocks, c.NumBlocks-1))
		}
	}
	errs = append(errs, c.Step.validate())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("engine config: %w", err)
	}
	return nil
}

// StepTime holds the coefficients of spec/vllm.md §3.2, all in nanoseconds:
//
//	t = Base + PerSeq·S + max(Weights, PerToken·T) + Attention + PerContext·K + PrefillAttention·Q + AllReduce + AllReducePerToken·T
type StepTime struct {
	Base              float64 // c0: fixed per step
	PerSeq            float64 // cs: per sequence in the step
	Weights           float64 // W: floor, reading the weights once
	PerToken          float64 // c: compute per token
	Attention         float64 // k0: attention launch
	PerContext        float64 // kv: per cached token read by a decoding sequence
	PrefillAttention  float64 // a: per unit of Q
	AllReduce         float64 // ar0: tensor parallel only
	AllReducePerToken float64 // ar: tensor parallel only
}

// Batch is what one step computes.
type Batch struct {
	Tokens    int     // T: prefill and decode tokens
	Seqs      int     // S: sequences
	Context   int     // K: context tokens read by decoding sequences
	Quadratic float64 // Q: sum over prefill chunks of n·(p + n/2)
}

// Duration is the time of a step with batch b, at least 1 ns so that time always advances. Each product is converted to float64
// by itself: that forbids fused multiply-add, so that every architecture computes the same nanosecond.
func (s StepTime) Duration(b Batch) time.Duration {
	t := s.Base + float64(s.PerSeq*float64(b.Seqs))
	t += max(s.Weights, float64(s.PerToken*float64(b.Tokens)))
	t += s.Attention + float64(s.PerContext*float64(b.Context))
	t += float64(s.PrefillAttention * b.Quadratic)
	t += s.AllReduce + float64(s.AllReducePerToken*float64(b.Tokens))
	return max(1, time.Duration(t))
}

func (s StepTime) validate() error {
	var errs []error
	for _, f := range [...]struct {
		name  string
		value float64
	}{
		{"Base", s.Base}, {"PerSeq", s.PerSeq}, {"Weights", s.Weights}, {"PerToken", s.PerToken}, {"Attention", s.Attention},
		{"PerContext", s.PerContext}, {"PrefillAttention", s.PrefillAttention}, {"AllReduce", s.AllReduce},
		{"AllReducePerToken", s.AllReducePerToken},
	} {
		if f.value < 0 || math.IsNaN(f.value) || math.IsInf(f.value, 0) {
			errs = append(errs, fmt.Errorf("Step.%s is %v ns, must be finite and not negative", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
