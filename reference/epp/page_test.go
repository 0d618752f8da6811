package epp

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/picker"
)

// life takes one request through everything that is counted about it.
func life(m *Metrics, l Labels, outcome wire.Outcome) {
	e := picker.Endpoint{ID: 0, Name: "pod", Address: "10.0.0.1:8000"}
	m.Enqueued(l, 100)
	m.EnqueueTook(l, time.Microsecond)
	if outcome == wire.Dispatched {
		m.Placed(l, e, 10)
	}
	m.Decided(l, l.Priority, 100, outcome, time.Millisecond)
	if outcome != wire.Dispatched {
		m.Refused(l, 429)
		return
	}
	m.Prefilled(l, e, 10)
	r := extproc.Report{Identity: extproc.Identity{FairnessID: l.FairnessID}, Model: l.Model, Target: l.Target, Priority: l.Priority, Streaming: true, Status: 200,
		Complete: true, RequestBytes: 100, ResponseBytes: 1000, Usage: extproc.Usage{Prompt: 3, Completion: 5, Known: true}, FirstByte: 2, LastByte: 9, Ended: 10}
	m.Gaps(r)(time.Millisecond)
	m.Released(l, e, 0)
	m.Answered(r)
	m.Finished(l)
}

func page(tb testing.TB, m *Metrics) []byte {
	tb.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		tb.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			tb.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestPageStaysSmall: ten thousand tenants make a page below 2 MB, and three thousand models, whose older series come on top, one
// below 3 MB; none of it is lost: what has no series of its own is under "other".
func TestPageStaysSmall(t *testing.T) {
	const n = 10_000
	for why, labels := range map[string]func(i int) Labels{
		"tenants": func(i int) Labels { return Labels{"llama-3.1-8b", "llama-3.1-8b", fmt.Sprintf("tenant-%05d", i), 0} },
		"models":  func(i int) Labels { return Labels{fmt.Sprintf("model-%05d", i%3000), "base", "t", 0} },
		"tenants and models": func(i int) Labels {
			return Labels{fmt.Sprintf("model-%05d", i%97), "base", fmt.Sprintf("tenant-%05d", i%89), i % 3}
		},
	} {
		m := testMetrics()
		m.Pin([]string{"pinned"})
		m.Endpoints([]picker.Endpoint{{ID: 0, Name: "pod", Address: "10.0.0.1:8000"}})
		for i := range n {
			life(m, labels(i), wire.Dispatched)
			life(m, labels(i), wire.RejectedCapacity)
		}
		life(m, Labels{"pinned", "pinned", "late", 0}, wire.Dispatched)
		p := page(t, m)
		t.Logf("%s: %d bytes, %d combinations", why, len(p), len(m.series))
		if len(p) > 2_000_000 && (why == "tenants" || len(p) > 3_000_000) {
			t.Errorf("%s: the page has %d bytes", why, len(p))
		}
		families, _ := m.Gatherer().Gather()
		var total, measured float64
		values := map[string]map[string]bool{"fairness_id": {}, "model_name": {}}
		for _, f := range families {
			for _, s := range f.GetMetric() {
				if f.GetName() == prefixEPP+"request_total" {
					total += s.GetCounter().GetValue()
				}
				if f.GetName() == prefixEPP+"request_duration_seconds" {
					measured += float64(s.GetHistogram().GetSampleCount())
				}
				for _, l := range s.GetLabel() {
					if set := values[l.GetName()]; set != nil {
						set[l.GetValue()] = true
					}
				}
			}
		}
		if total != n+1 || measured != n+1 {
			t.Errorf("%s: %v counted, %v measured", why, total, measured)
		}
		for name, set := range values {
			if len(set) > valueCap+2 { // "other", and one pinned
				t.Errorf("%s: %d values of %s", why, len(set), name)
			}
		}
		if got := value(t, m, prefixEPP+"request_total", map[string]string{"model_name": "pinned"}); got != 1 {
			t.Errorf("%s: a configured model has its own series whatever came before, got %v", why, got)
		}
	}
}

// TestSweep: the series of a collected flow disappear, those of a flow that is alive, in use or was refused just now stay.
func TestSweep(t *testing.T) {
	m := testMetrics()
	idle := m.flow.FlowIdle
	if idle <= 0 {
		t.Fatal("no idle time")
	}
	alive := map[string]bool{"kept": true}
	has := func(p int, id string) bool { return alive[id] && p == 0 }
	on := func(id string) Labels { return Labels{"m-" + id, "m-" + id, id, 0} }
	m.Endpoints([]picker.Endpoint{{ID: 0, Name: "pod", Address: "10.0.0.1:8000"}})
	for _, id := range []string{"kept", "gone"} {
		life(m, on(id), wire.Dispatched)
		life(m, on(id), wire.EvictedTTL)
	}
	m.Refused(on("refused"), 400)
	m.Enqueued(on("waiting"), 1)
	count := func(id string) int {
		return strings.Count(string(page(t, m)), `"`+id+`"`) + strings.Count(string(page(t, m)), `"m-`+id+`"`)
	}
	m.Sweep(0, has)
	m.Sweep(idle-1, has)
	for _, id := range []string{"kept", "gone", "refused", "waiting"} {
		if count(id) == 0 {
			t.Errorf("%s: no series before its time", id)
		}
	}
	m.Sweep(idle, has)
	for id, want := range map[string]bool{"kept": true, "gone": false, "refused": false, "waiting": true} {
		if (count(id) > 0) != want {
			t.Errorf("%s: %d lines", id, count(id))
		}
	}
	life(m, on("gone"), wire.Dispatched) // it comes back and starts anew
	if got := value(t, m, prefixEPP+"request_total", map[string]string{"fairness_id": "gone"}); got != 1 {
		t.Error(got)
	}
	m.Decided(on("waiting"), 0, 1, wire.EvictedTTL, 0)
	alive = nil
	m.Sweep(2*idle, has)
	m.Sweep(3*idle, has)
	if left := m.labelBook; len(left.series) != 0 || len(left.flows) != 0 || len(left.models) != 0 || len(left.byModel) != 0 || left.detailed != 0 || len(m.inflight) != 0 {
		t.Errorf("%+v", left)
	}
	for line := range strings.Lines(string(page(t, m))) {
		if strings.Contains(line, "fairness_id=") || strings.Contains(line, "model_name=\"m") {
			t.Errorf("left over: %s", line)
		}
	}
}

// TestEndpointSeriesEnd: what is published about an endpoint ends with it, at once or with its last request (MET-10, ACCT-4).
func TestEndpointSeriesEnd(t *testing.T) {
	m := testMetrics()
	a, b := picker.Endpoint{ID: 0, Name: "ns/a", Address: "10.0.0.1:8000"}, picker.Endpoint{ID: 1, Name: "ns/b", Address: "10.0.0.2:8000"}
	l := Labels{"m", "m", "f", 0}
	m.Endpoints([]picker.Endpoint{a, b})
	for _, e := range []picker.Endpoint{a, b} {
		m.Sample(e.ID, picker.Load{OK: true})
		m.Enqueued(l, 1)
		m.Placed(l, e, 5)
		m.Decided(l, 0, 1, wire.Dispatched, 0)
	}
	m.Released(l, a, 5)
	lines := func(name string) (n int) {
		for line := range strings.Lines(string(page(t, m))) {
			if strings.Contains(line, `"`+name+`"`) {
				n++
			}
		}
		return n
	}
	if got := value(t, m, prefixEPP+"inflight_tokens", map[string]string{"endpoint_name": "b", "namespace": "ns", "producer_name": producer}); got != 5 {
		t.Error(got)
	}
	m.Endpoints(nil)
	if lines("a") != 0 || lines("ns/a") != 0 || lines("ns/b") != 0 {
		t.Errorf("%d %d %d", lines("a"), lines("ns/a"), lines("ns/b"))
	}
	if got := value(t, m, prefixEPP+"inflight_requests", map[string]string{"endpoint_name": "b"}); got != 1 {
		t.Error("still in flight:", got)
	}
	m.Prefilled(l, b, 5)
	m.Released(l, b, 0)
	if lines("b") != 0 {
		t.Errorf("%d lines", lines("b"))
	}
	m.Released(l, b, 5) // late news do no harm
}

// TestContract compares names, types and labels with spec/endpoint-picker.md §7, for a picker that did everything once (FC-MET-11).
func TestContract(t *testing.T) {
	c, _ := epconfig.ContractNamed("")
	cfg := epconfig.Default(c)
	cfg.Picker.Flow.MaxRequests, cfg.Picker.Flow.MaxBytes = 10, 1000
	m := NewMetrics("pool", cfg)
	e := picker.Endpoint{ID: 0, Name: "pod", Address: "10.0.0.1:8000"}
	m.Endpoints([]picker.Endpoint{e})
	m.Sample(0, picker.Load{OK: true})
	l := Labels{"m", "m", "f", 0}
	m.CycleTook(1)
	m.ScheduleTook(1)
	m.Pressure(picker.Pressure{HasDecode: true, HasPrefill: true})
	m.Evictions([]picker.PriorityCount{{Priority: 1, Count: 1}}, picker.EvictionState{})
	m.Confirmed([]time.Duration{1})
	life(m, l, wire.RejectedCapacity)
	m.Enqueued(l, 1)
	m.Placed(l, e, 1)
	life(m, l, wire.Dispatched)
	m.Polled(1, true, false)
	m.Polled(1, false, true)
	m.Rewritten("r", "a", "b")
	m.StreamOpened()
	m.StreamEnded("OK", 1)
	const request, flow, load = "model_name target_model_name fairness_id priority", "fairness_id priority inference_pool model_name target_model_name", "endpoint_name namespace producer_name fairness_id priority"
	want := map[string]string{
		"llm_d_epp_request_total": "C " + request, "llm_d_epp_request_error_total": "C " + request + " error_code", "llm_d_epp_request_running": "G " + request,
		"llm_d_epp_request_duration_seconds": "H35 " + request, "llm_d_epp_request_size_bytes": "H25 " + request, "llm_d_epp_response_size_bytes": "H15 " + request,
		"llm_d_epp_request_input_tokens": "H19 " + request, "llm_d_epp_request_cached_tokens": "H19 " + request, "llm_d_epp_request_output_tokens": "H12 " + request,
		"llm_d_epp_request_ntpot_seconds": "H13 " + request, "llm_d_epp_request_ttft_seconds": "H24 " + request + " streaming",
		"llm_d_epp_request_streaming_tpot_seconds": "H19 " + request, "llm_d_epp_request_streaming_itl_seconds": "H15 " + request,
		"inference_objective_request_total":       "C model_name target_model_name priority",
		"inference_objective_request_error_total": "C model_name target_model_name error_code", "inference_objective_running_requests": "G model_name",
		"inference_objective_request_duration_seconds": "H35 model_name target_model_name", "inference_objective_request_sizes": "H25 model_name target_model_name",
		"inference_objective_response_sizes": "H15 model_name target_model_name", "inference_objective_input_tokens": "H19 model_name target_model_name",
		"inference_objective_prompt_cached_tokens": "H19 model_name target_model_name", "inference_objective_output_tokens": "H12 model_name target_model_name",
		"inference_objective_normalized_time_per_output_token_seconds": "H13 model_name target_model_name",
		"llm_d_epp_flow_control_requests_total":                        "C outcome priority inference_pool", "llm_d_epp_flow_control_stale_endpoints": "G detector",
		"llm_d_epp_flow_control_capacity_utilization_requests": "G priority inference_pool", "llm_d_epp_flow_control_capacity_utilization_bytes": "G priority inference_pool",
		"llm_d_epp_flow_control_global_capacity_utilization_requests": "G inference_pool", "llm_d_epp_flow_control_global_capacity_utilization_bytes": "G inference_pool",
		"llm_d_epp_flow_control_revocations_issued_total": "C priority inference_pool", "llm_d_epp_flow_control_revocations_total": "C outcome inference_pool",
		"llm_d_epp_flow_control_reclaim_target": "G inference_pool", "llm_d_epp_flow_control_pending_reclaim": "G inference_pool",
		"llm_d_epp_flow_control_revocation_confirmation_seconds": "H11 inference_pool",
		"llm_d_epp_inflight_requests":                            "G " + load, "llm_d_epp_inflight_tokens": "G " + load,
		"llm_d_epp_scheduler_e2e_duration_seconds": "H10", "llm_d_epp_scheduler_attempts_total": "C status target_model_name endpoint_name namespace port",
		"llm_d_epp_plugin_duration_seconds":             "H10 extension_point plugin_type plugin_name",
		"llm_d_epp_request_processing_duration_seconds": "H35", "llm_d_epp_response_processing_duration_seconds": "H10",
		"llm_d_epp_info": "G commit build_ref", "llm_d_epp_model_rewrite_decisions_total": "C model_rewrite_name model_name target_model",
		"llm_d_epp_datalayer_poll_errors_total": "C source_type", "llm_d_epp_datalayer_extract_errors_total": "C source_type extractor_type",
		"llm_d_epp_extproc_streams_inflight": "G", "llm_d_epp_extproc_stream_duration_seconds": "H35", "llm_d_epp_extproc_streams_total": "C code",
		"llm_d_epp_per_endpoint_queue_size": "G name model_server_endpoint", "inference_pool_per_pod_queue_size": "G name model_server_pod",
		"llm_d_epp_ready_endpoints": "G name", "inference_pool_ready_pods": "G name",
	}
	for _, s := range []string{"kv_cache_utilization", "queue_size", "running_requests"} {
		want["llm_d_epp_average_"+s], want["inference_pool_average_"+s], want["llm_d_epp_std_dev_"+s] = "G name", "G name", "G name"
	}
	for _, p := range []string{"llm_d_epp_flow_control_", "inference_extension_flow_control_"} {
		want[p+"request_queue_duration_seconds"] = "H16 fairness_id priority outcome inference_pool model_name target_model_name"
		want[p+"request_enqueue_duration_seconds"] = "H10 fairness_id priority outcome"
		want[p+"dispatch_cycle_duration_seconds"] = "H10"
		want[p+"queue_size"], want[p+"queue_bytes"], want[p+"pool_saturation"] = "G "+flow, "G "+flow, "G inference_pool stage"
	}
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, f := range families {
		have[f.GetName()] = shape(f)
	}
	for name, w := range want {
		if have[name] != sorted(w) {
			t.Errorf("%s: %q, want %q", name, have[name], sorted(w))
		}
	}
}

// shape writes a family as its type, the number of its buckets and its labels.
func shape(f *dto.MetricFamily) string {
	s := f.GetMetric()[0]
	kind := "G"
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		kind = "C"
	case dto.MetricType_HISTOGRAM:
		kind = fmt.Sprint("H", len(s.GetHistogram().GetBucket()))
	}
	for _, l := range s.GetLabel() {
		kind += " " + l.GetName()
	}
	return sorted(kind)
}

func sorted(s string) string {
	words := strings.Fields(s)
	slices.Sort(words[1:])
	return strings.Join(words, " ")
}

// TestStaleAverages: averages are over fresh endpoints; while none is fresh they stay as they were (§7.2).
func TestStaleAverages(t *testing.T) {
	m := testMetrics()
	m.Endpoints([]picker.Endpoint{{ID: 0, Name: "a"}, {ID: 1, Name: "b"}})
	average := func() float64 { return value(t, m, "llm_d_epp_average_queue_size", nil) }
	m.Sample(0, picker.Load{Waiting: 4, OK: true})
	m.Sample(1, picker.Load{Waiting: 8, OK: true})
	if average() != 6 || value(t, m, "llm_d_epp_std_dev_queue_size", nil) != 2 {
		t.Error(average())
	}
	m.Sample(0, picker.Load{At: 3 * time.Second, Waiting: 5, OK: true})
	if average() != 5 {
		t.Error("only the fresh one counts:", average())
	}
	m.Sample(0, picker.Load{At: time.Hour})
	if average() != 5 {
		t.Error("left as it was:", average())
	}
	m.Endpoints(nil)
	if average() != 0 {
		t.Error("an empty pool has no queue:", average())
	}
}

// BenchmarkPage reads the page of a picker with more tenants than it keeps apart.
func BenchmarkPage(b *testing.B) {
	m := testMetrics()
	for i := range 10_000 {
		life(m, Labels{"m", "m", fmt.Sprint("tenant-", i), 0}, wire.Dispatched)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = io.Discard.Write(page(b, m))
	}
}
