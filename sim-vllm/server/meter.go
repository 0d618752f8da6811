package server

import (
	"sort"
	"sync"
	"time"

	"github.com/llm-weir/weir/sim-vllm/engine"
)

// Bucket edges of spec/vllm.md §2.7.
var (
	bucketsTTFT = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	bucketsITL  = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	bucketsE2E  = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	bucketsIter = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	bucketsN    = []float64{1, 2, 5, 10, 20}
	bucketsPree = []float64{1, 2, 3, 4, 5, 10, 20}
)

// oneTwoFive gives the edges 1, 2, 5, 10, 20, 50, ... up to most.
func oneTwoFive(most int) []float64 {
	var edges []float64
	for decade := 1; ; decade *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*decade > most {
				return edges
			}
			edges = append(edges, float64(m*decade))
		}
	}
}

type histogram struct {
	edges  []float64
	counts []uint64 // one more than edges; not cumulative
	sum    float64
}

func newHistogram(edges []float64) histogram {
	return histogram{edges: edges, counts: make([]uint64, len(edges)+1)}
}

func (h *histogram) observe(v float64) {
	h.counts[sort.SearchFloat64s(h.edges, v)]++
	h.sum += v
}

// timeline is what the metrics need to know of one request. Instants are the clock's.
type timeline struct {
	arrival, scheduled, first, last time.Duration
	prompt, maxTokens               int
	tokens, preemptions             int
}

// Finished reasons, as indices into meter.finished.
const (
	finStop = iota
	finLength
	finAbort
	finReasons
)

func finReason(stop bool) int {
	if stop {
		return finStop
	}
	return finLength
}

// meter counts what the metrics page shows. Gauges and counters of the engine come from one picture of it.
type meter struct {
	mu               sync.Mutex
	engine           engine.Stats
	promptTokens     uint64
	generationTokens uint64
	preemptions      uint64
	finished         [finReasons]uint64

	ttft, itl, tpot, e2e, queue, inference, prefill, decode              histogram
	iterationTokens, promptSize, outputSize, maxTokens, maxOutput, kvNew histogram
	n, preempted                                                         histogram
}

func (m *meter) init(maxModelLen int) {
	m.ttft = newHistogram(bucketsTTFT)
	m.itl, m.tpot = newHistogram(bucketsITL), newHistogram(bucketsITL)
	for _, h := range []*histogram{&m.e2e, &m.queue, &m.inference, &m.prefill, &m.decode} {
		*h = newHistogram(bucketsE2E)
	}
	m.iterationTokens, m.n, m.preempted = newHistogram(bucketsIter), newHistogram(bucketsN), newHistogram(bucketsPree)
	sizes := oneTwoFive(maxModelLen)
	for _, h := range []*histogram{&m.promptSize, &m.outputSize, &m.maxTokens, &m.maxOutput, &m.kvNew} {
		*h = newHistogram(sizes)
	}
}

func (m *meter) setEngine(s engine.Stats) {
	m.mu.Lock()
	m.engine = s
	m.mu.Unlock()
}

func (m *meter) iteration(tokens int) {
	m.mu.Lock()
	m.iterationTokens.observe(float64(tokens))
	m.mu.Unlock()
}

// observe takes one report of the engine about the request of l.
func (m *meter) observe(l *timeline, o engine.Out) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch o.Kind {
	case engine.FirstToken:
		l.scheduled = o.Scheduled
		m.token(l, o.At)
	case engine.Token:
		m.token(l, o.At)
	case engine.Preempted:
		m.preemptions++
		l.preemptions++
	case engine.Finished:
		m.finish(l, finReason(o.Reason == engine.Stop), o.At)
	case engine.Aborted:
		m.finished[finAbort]++
	}
}

// token counts one more token of l at instant at. The caller holds the lock.
func (m *meter) token(l *timeline, at time.Duration) {
	if l.tokens == 0 {
		l.first = at
		m.promptTokens += uint64(l.prompt)
		m.ttft.observe((at - l.arrival).Seconds())
	} else {
		m.itl.observe((at - l.last).Seconds())
	}
	l.tokens++
	l.last = at
	m.generationTokens++
}

// finish counts the end of l, with the definitions of spec/vllm.md §2.6. The caller holds the lock.
func (m *meter) finish(l *timeline, reason int, at time.Duration) {
	m.finished[reason]++
	m.e2e.observe((at - l.arrival).Seconds())
	m.queue.observe((l.scheduled - l.arrival).Seconds())
	m.prefill.observe((l.first - l.scheduled).Seconds())
	m.decode.observe((l.last - l.first).Seconds())
	m.inference.observe((l.last - l.scheduled).Seconds())
	if l.tokens > 1 {
		m.tpot.observe((l.last - l.first).Seconds() / float64(l.tokens-1))
	}
	m.promptSize.observe(float64(l.prompt))
	m.outputSize.observe(float64(l.tokens))
	m.maxTokens.observe(float64(l.maxTokens))
	m.maxOutput.observe(float64(l.tokens)) // the most of n sequences, and n is 1
	m.kvNew.observe(float64(l.prompt))     // no prefix cache
	m.n.observe(1)
	m.preempted.observe(float64(l.preemptions))
}

// heldTokens counts tokens of a held request, which the engine never sees.
func (m *meter) heldTokens(l *timeline, tokens int, at time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range tokens {
		m.token(l, at)
	}
}

func (m *meter) heldEnd(l *timeline, reason int, at time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if reason == finAbort {
		m.finished[finAbort]++
		return
	}
	m.finish(l, reason, at)
}
