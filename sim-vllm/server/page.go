package server

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/llm-weir/weir/harness/wire"
)

// metrics serves the page, or what the fault makes of it. A scrape counts once it is answered.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault, frozen, unhang := s.fault, s.frozen, s.unhang
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	page := frozen
	switch fault {
	case FaultHang:
		select {
		case <-unhang:
		case <-s.closing:
		case <-r.Context().Done():
			return
		}
		page = s.page(true)
	case FaultError500:
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		page = nil
	case FaultDrop:
		page = s.ownPage()
	case FaultUntyped:
		page = s.page(false)
	case FaultNone:
		page = s.page(true)
	}
	_, _ = w.Write(page) // a scraper that left needs nothing
	s.mu.Lock()
	s.scrapes++
	s.version++
	s.mu.Unlock()
	s.event()
}

// gauges reads the three scriptable gauges.
func (s *Server) gauges() Load {
	s.mu.Lock()
	load, held := s.load, float64(len(s.held))
	s.mu.Unlock()
	if load != nil {
		return *load
	}
	s.meter.mu.Lock()
	e := s.meter.engine
	s.meter.mu.Unlock()
	g := Load{Waiting: float64(e.Waiting), Running: float64(e.Running), KV: e.KVUsage}
	if s.cfg.HeldAsWaiting {
		g.Waiting += held
	} else {
		g.Running += held
	}
	return g
}

// printer writes the text format. Every series carries the labels of one engine of one model.
type printer struct {
	b       bytes.Buffer
	typed   bool
	labels  string
	created string
}

func (p *printer) family(name, kind, help string) {
	fmt.Fprintf(&p.b, "# HELP %s %s\n", name, help)
	if p.typed {
		fmt.Fprintf(&p.b, "# TYPE %s %s\n", name, kind)
	}
}

func (p *printer) series(name, extra string, value float64) {
	p.b.WriteString(name)
	p.b.WriteByte('{')
	p.b.WriteString(p.labels)
	if extra != "" {
		p.b.WriteByte(',')
		p.b.WriteString(extra)
	}
	p.b.WriteString("} ")
	p.b.WriteString(number(value))
	p.b.WriteByte('\n')
}

// number formats a value as Python's client does: 1.0, not 1.
func number(v float64) string {
	t := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(t, ".eIN") {
		t += ".0"
	}
	return t
}

func (p *printer) gauge(name, help string, value float64) {
	p.family(name, "gauge", help)
	p.series(name, "", value)
}

// labelled is one value of a family with a further label.
type labelled struct {
	label string
	value float64
}

// counter writes name_total and its name_created sibling.
func (p *printer) counter(name, help string, values ...labelled) {
	p.family(name+"_total", "counter", help)
	for _, v := range values {
		p.series(name+"_total", v.label, v.value)
	}
	p.family(name+"_created", "gauge", help)
	for _, v := range values {
		p.b.WriteString(name + "_created{" + p.labels)
		if v.label != "" {
			p.b.WriteString("," + v.label)
		}
		p.b.WriteString("} " + p.created + "\n")
	}
}

func (p *printer) histogram(name, help string, h *histogram) {
	p.family(name, "histogram", help)
	var sum uint64
	for i, edge := range h.edges {
		sum += h.counts[i]
		p.series(name+"_bucket", `le="`+number(edge)+`"`, float64(sum))
	}
	sum += h.counts[len(h.edges)]
	p.series(name+"_bucket", `le="+Inf"`, float64(sum))
	p.series(name+"_count", "", float64(sum))
	p.series(name+"_sum", "", h.sum)
	p.family(name+"_created", "gauge", help)
	p.b.WriteString(name + "_created{" + p.labels + "} " + p.created + "\n")
}

func plain(v uint64) labelled { return labelled{value: float64(v)} }

// page renders vLLM's series (spec/vllm.md §2.7) and the simulator's own.
func (s *Server) page(typed bool) []byte {
	p := printer{typed: typed, labels: `model_name="` + escapeLabel(s.model) + `",engine="0"`,
		created: number(float64(s.started.UnixMilli()) / 1000)}
	s.writeGauges(&p, s.gauges())
	s.meter.mu.Lock()
	s.meter.writeCounters(&p)
	s.meter.writeHistograms(&p)
	s.meter.mu.Unlock()
	p.b.Write(s.ownPage())
	return p.b.Bytes()
}

// ownPage is the part that is not vLLM's.
func (s *Server) ownPage() []byte {
	return fmt.Appendf(nil, "# HELP sim_late_steps_total Steps that began a whole step or more after their time.\n"+
		"# TYPE sim_late_steps_total counter\nsim_late_steps_total %d\n", s.late.Load())
}

func (s *Server) writeGauges(p *printer, g Load) {
	p.gauge(wire.VLLMRunning, "Number of requests in model execution batches.", g.Running)
	p.gauge(wire.VLLMWaiting, "Number of requests waiting to be processed.", g.Waiting)
	by := wire.VLLMWaiting + "_by_reason"
	p.family(by, "gauge", "Number of requests waiting to be processed, by reason.")
	p.series(by, `reason="capacity"`, g.Waiting)
	p.series(by, `reason="deferred"`, 0)
	p.gauge(wire.VLLMKVUsage, "KV-cache usage. 1 means 100 percent usage.", g.KV)
	sleep := "vllm:engine_sleep_state"
	p.family(sleep, "gauge", "Engine sleep state.")
	p.series(sleep, `sleep_state="awake"`, 1)
	p.series(sleep, `sleep_state="weights_offloaded"`, 0)
	p.series(sleep, `sleep_state="discard_all"`, 0)
	p.family(wire.VLLMLoRAInfo, "gauge", "Running stats on LoRA requests.")
	fmt.Fprintf(&p.b, "%s{max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} %s\n", wire.VLLMLoRAInfo, p.created)
	c := s.cfg.Engine
	tokens := (c.NumBlocks - 1) * c.BlockSize
	p.family(wire.VLLMCacheCfg, "gauge", "Information of the LLMEngine CacheConfig.")
	fmt.Fprintf(&p.b, `%s{block_size="%d",cache_dtype="auto",enable_prefix_caching="False",engine="0",gpu_memory_utilization="0.92",`+
		`kv_cache_max_concurrency="%.2f",kv_cache_size_tokens="%d",num_cpu_blocks="None",num_gpu_blocks="%d",`+
		`num_gpu_blocks_override="None",prefix_caching_hash_algo="sha256",sliding_window="None"} 1.0`+"\n",
		wire.VLLMCacheCfg, c.BlockSize, float64(tokens)/float64(c.MaxModelLen), tokens, c.NumBlocks)
}

func (m *meter) writeCounters(p *printer) {
	p.counter("vllm:num_preemptions", "Cumulative number of preemptions from the engine.", plain(m.preemptions))
	p.counter("vllm:prompt_tokens", "Number of prefill tokens processed.", plain(m.promptTokens))
	p.counter("vllm:generation_tokens", "Number of generation tokens processed.", plain(m.generationTokens))
	p.counter("vllm:prompt_tokens_by_source", "Number of prompt tokens by source.",
		labelled{`source="local_compute"`, float64(m.promptTokens)}, labelled{`source="local_cache_hit"`, 0},
		labelled{`source="external_kv_transfer"`, 0})
	for _, name := range []string{"prompt_tokens_cached", "prefix_cache_queries", "prefix_cache_hits", "external_prefix_cache_queries",
		"external_prefix_cache_hits", "mm_cache_queries", "mm_cache_hits", "corrupted_requests", "estimated_flops_per_gpu",
		"estimated_read_bytes_per_gpu", "estimated_write_bytes_per_gpu"} {
		p.counter("vllm:"+name, "Not modelled by the simulator: always 0.", plain(0))
	}
	p.counter("vllm:request_success", "Count of successfully processed requests.",
		labelled{`finished_reason="stop"`, float64(m.finished[finStop])},
		labelled{`finished_reason="length"`, float64(m.finished[finLength])},
		labelled{`finished_reason="abort"`, float64(m.finished[finAbort])},
		labelled{`finished_reason="error"`, 0}, labelled{`finished_reason="repetition"`, 0})
}

func (m *meter) writeHistograms(p *printer) {
	for _, f := range []struct {
		name, help string
		h          *histogram
	}{
		{"time_to_first_token_seconds", "Time to first token in seconds.", &m.ttft},
		{"inter_token_latency_seconds", "Inter-token latency in seconds.", &m.itl},
		{"request_time_per_output_token_seconds", "Time per output token of a request in seconds.", &m.tpot},
		{"e2e_request_latency_seconds", "End-to-end request latency in seconds.", &m.e2e},
		{"request_queue_time_seconds", "Time spent in the WAITING phase.", &m.queue},
		{"request_inference_time_seconds", "Time spent in the RUNNING phase.", &m.inference},
		{"request_prefill_time_seconds", "Time spent in the PREFILL phase.", &m.prefill},
		{"request_decode_time_seconds", "Time spent in the DECODE phase.", &m.decode},
		{"iteration_tokens_total", "Tokens per engine step.", &m.iterationTokens},
		{"request_prompt_tokens", "Prefill tokens per request.", &m.promptSize},
		{"request_generation_tokens", "Generation tokens per request.", &m.outputSize},
		{"request_params_max_tokens", "The max_tokens request parameter.", &m.maxTokens},
		{"request_max_num_generation_tokens", "Most generation tokens of a request's sequences.", &m.maxOutput},
		{"request_prefill_kv_computed_tokens", "New KV tokens computed in prefill.", &m.kvNew},
		{"request_params_n", "The n request parameter.", &m.n},
		{"request_num_preemptions", "Preemptions per request.", &m.preempted},
	} {
		p.histogram("vllm:"+f.name, f.help, f.h)
	}
}

func escapeLabel(v string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(v)
}
