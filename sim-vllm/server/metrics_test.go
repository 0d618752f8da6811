package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-weir/weir/harness/wire"
)

func parsePage(t *testing.T, page string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	m, err := p.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatalf("%v in\n%s", err, page)
	}
	return m
}

func gauge(t *testing.T, page, name string) float64 {
	t.Helper()
	f := parsePage(t, page)[name]
	if f == nil {
		t.Fatalf("no %s", name)
	}
	if f.Metric[0].Untyped != nil {
		return f.Metric[0].Untyped.GetValue()
	}
	return f.Metric[0].Gauge.GetValue()
}

func TestMetricsPageParses(t *testing.T) {
	f := start(t, func(c *Config) { c.Model = `a"b\c` })
	for range 3 {
		f.post("r", "/v1/completions", `{"prompt":"12345678","max_tokens":4}`)
	}
	got := f.get("/metrics")
	families := parsePage(t, got.body)
	counter := dto.MetricType_COUNTER
	for name, kind := range map[string]dto.MetricType{
		wire.VLLMRunning: dto.MetricType_GAUGE, wire.VLLMWaiting: dto.MetricType_GAUGE, wire.VLLMKVUsage: dto.MetricType_GAUGE,
		wire.VLLMCacheCfg: dto.MetricType_GAUGE, wire.VLLMLoRAInfo: dto.MetricType_GAUGE,
		"vllm:num_requests_waiting_by_reason": dto.MetricType_GAUGE, "vllm:engine_sleep_state": dto.MetricType_GAUGE,
		"vllm:num_preemptions_total": counter, "vllm:prompt_tokens_total": counter, "vllm:generation_tokens_total": counter,
		"vllm:request_success_total": counter, "vllm:prefix_cache_queries_total": counter, "vllm:prompt_tokens_created": dto.MetricType_GAUGE,
		"vllm:time_to_first_token_seconds": dto.MetricType_HISTOGRAM, "vllm:iteration_tokens_total": dto.MetricType_HISTOGRAM,
		"vllm:e2e_request_latency_seconds": dto.MetricType_HISTOGRAM, "vllm:request_num_preemptions": dto.MetricType_HISTOGRAM,
	} {
		family := families[name]
		if family == nil || family.GetType() != kind {
			t.Errorf("%s is %v, want %v", name, family.GetType(), kind)
			continue
		}
		if name == wire.VLLMLoRAInfo {
			continue
		}
		labels := map[string]string{}
		for _, l := range family.Metric[0].Label {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["engine"] != "0" || (labels["model_name"] != `a"b\c` && name != wire.VLLMCacheCfg) {
			t.Errorf("%s has labels %v", name, labels)
		}
	}
	if v := families["vllm:prompt_tokens_total"].Metric[0].Counter.GetValue(); v != 6 {
		t.Errorf("%v prompt tokens, want 6", v)
	}
	if v := families["vllm:generation_tokens_total"].Metric[0].Counter.GetValue(); v != 12 {
		t.Errorf("%v generation tokens, want 12", v)
	}
	for name, count := range map[string]uint64{"vllm:time_to_first_token_seconds": 3, "vllm:inter_token_latency_seconds": 9,
		"vllm:iteration_tokens_total": 12, "vllm:request_prompt_tokens": 3} {
		if n := families[name].Metric[0].Histogram.GetSampleCount(); n != count {
			t.Errorf("%s has %d samples, want %d", name, n, count)
		}
	}
	var edges []float64
	for _, b := range families["vllm:time_to_first_token_seconds"].Metric[0].Histogram.Bucket {
		edges = append(edges, b.GetUpperBound())
	}
	if !slices.Equal(edges[:len(bucketsTTFT)], bucketsTTFT) {
		t.Errorf("TTFT edges %v", edges)
	}
	reasons := map[string]float64{}
	for _, m := range families["vllm:request_success_total"].Metric {
		for _, l := range m.Label {
			if l.GetName() == "finished_reason" {
				reasons[l.GetValue()] = m.Counter.GetValue()
			}
		}
	}
	if reasons["length"] != 3 || len(reasons) != 5 {
		t.Errorf("finished reasons %v", reasons)
	}
}

func TestHeldRequestsAndScriptedLoadOnThePage(t *testing.T) {
	for _, asWaiting := range []bool{false, true} {
		f := start(t, func(c *Config) { c.Hold, c.HeldAsWaiting = true, asWaiting })
		a := f.later(t.Context(), "a", "/v1/completions", plainBody)
		f.awaitHeld("a")
		want := map[string]float64{wire.VLLMRunning: 1, wire.VLLMWaiting: 0}
		if asWaiting {
			want = map[string]float64{wire.VLLMRunning: 0, wire.VLLMWaiting: 1}
		}
		page := f.get("/metrics").body
		for name, v := range want {
			if got := gauge(t, page, name); got != v {
				t.Errorf("held as waiting %t: %s is %v, want %v", asWaiting, name, got, v)
			}
		}
		f.SetLoad(&Load{Waiting: 7, Running: 3, KV: 0.5})
		page = f.get("/metrics").body
		if gauge(t, page, wire.VLLMWaiting) != 7 || gauge(t, page, wire.VLLMRunning) != 3 || gauge(t, page, wire.VLLMKVUsage) != 0.5 {
			t.Errorf("scripted load is not on the page:\n%s", page)
		}
		f.SetLoad(nil)
		if got := gauge(t, f.get("/metrics").body, wire.VLLMWaiting); got != want[wire.VLLMWaiting] {
			t.Errorf("waiting is %v after the script", got)
		}
		if f.Scrapes() != 3 {
			t.Errorf("%d scrapes, want 3", f.Scrapes())
		}
		f.ReleaseAll()
		<-a
	}
}

func TestMetricsFaults(t *testing.T) {
	f := start(t, nil)
	if f.SetMetricsFault("odd") == nil {
		t.Error("an unknown fault was taken")
	}
	set := func(m MetricsFault) {
		if err := f.SetMetricsFault(m); err != nil {
			t.Fatal(err)
		}
	}
	f.SetLoad(&Load{Waiting: 1})
	set(FaultFreeze)
	f.SetLoad(&Load{Waiting: 2})
	if v := gauge(t, f.get("/metrics").body, wire.VLLMWaiting); v != 1 {
		t.Errorf("frozen page shows %v, want 1", v)
	}
	set(FaultDrop)
	if got := f.get("/metrics"); got.status != 200 || strings.Contains(got.body, "vllm:") {
		t.Errorf("drop: %+v", got)
	}
	set(FaultError500)
	if got := f.get("/metrics"); got.status != 500 || strings.Contains(got.body, "vllm:") {
		t.Errorf("error500: %+v", got)
	}
	set(FaultUntyped)
	got := f.get("/metrics")
	if strings.Contains(got.body, "# TYPE vllm:") || gauge(t, got.body, wire.VLLMWaiting) != 2 {
		t.Errorf("untyped: %+v", got)
	}
	before := f.Scrapes()
	set(FaultHang)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() {
		resp, err := f.client.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		gone <- err
	}()
	cancel()
	if <-gone == nil {
		t.Error("a hanging page answered")
	}
	if f.Scrapes() != before {
		t.Error("an unanswered scrape was counted")
	}
	set(FaultNone)
	if v := gauge(t, f.get("/metrics").body, wire.VLLMWaiting); v != 2 {
		t.Errorf("waiting is %v after the faults", v)
	}
}
