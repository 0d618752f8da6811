package catalog

import (
	"slices"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/wire"
)

// The label sets of the metric tables (spec/endpoint-picker.md §7).
var (
	requestLabels       = []string{"model_name", "target_model_name", "fairness_id", "priority"}
	legacyRequestLabels = []string{"model_name", "target_model_name"}
	flowLabels          = []string{"fairness_id", "priority", "inference_pool", "model_name", "target_model_name"}
)

func family(kind string, labels []string, names ...string) []checks.Family {
	var out []checks.Family
	for _, n := range names {
		out = append(out, checks.Family{Name: n, Type: kind, Labels: labels})
	}
	return out
}

// contractFamilies are the metric families that a contract names and that a run with queueing, a refusal and a counted stream shows
// (FC-MET-11). What other features add has requirements of its own.
func contractFamilies(contract string) []checks.Family {
	legacy := slices.Concat(
		family("gauge", flowLabels[:3], wire.PrefixLegacyFC+wire.MetricQueueSize),
		family("gauge", nil, wire.PrefixLegacyFC+wire.MetricPoolSaturation),
		family("histogram", []string{"fairness_id", "priority", "outcome"}, wire.PrefixLegacyFC+wire.MetricQueueDuration, wire.PrefixLegacyFC+"request_enqueue_duration_seconds"),
		family("histogram", nil, wire.PrefixLegacyFC+"dispatch_cycle_duration_seconds"),
		family("counter", legacyRequestLabels, "inference_objective_request_total", "inference_objective_request_error_total"),
		family("histogram", legacyRequestLabels, "inference_objective_request_duration_seconds", "inference_objective_request_sizes", "inference_objective_response_sizes",
			"inference_objective_input_tokens", "inference_objective_output_tokens"),
		family("gauge", []string{"model_name"}, "inference_objective_running_requests"),
		family("gauge", []string{"name"}, "inference_pool_average_kv_cache_utilization", "inference_pool_average_queue_size", "inference_pool_ready_pods"),
		family("gauge", []string{"name", "model_server_pod"}, "inference_pool_per_pod_queue_size"))
	if contract == "rhoai-3.4" {
		return legacy
	}
	fc, epp := wire.PrefixFlowControl, wire.PrefixEPP
	all := slices.Concat(legacy,
		family("gauge", flowLabels, fc+wire.MetricQueueSize, fc+wire.MetricQueueBytes),
		family("gauge", []string{"inference_pool"}, fc+wire.MetricPoolSaturation),
		family("histogram", append(slices.Clone(flowLabels), "outcome"), fc+wire.MetricQueueDuration),
		family("histogram", []string{"fairness_id", "priority", "outcome"}, fc+"request_enqueue_duration_seconds"),
		family("histogram", nil, fc+"dispatch_cycle_duration_seconds"),
		family("counter", requestLabels, epp+"request_total"),
		family("counter", append(slices.Clone(requestLabels), "error_code"), epp+"request_error_total"),
		family("histogram", requestLabels, epp+"request_duration_seconds", epp+"request_size_bytes", epp+"response_size_bytes", epp+"request_input_tokens",
			epp+"request_output_tokens"),
		family("histogram", append(slices.Clone(requestLabels), "streaming"), epp+"request_ttft_seconds"),
		family("gauge", requestLabels, epp+"request_running"),
		family("gauge", []string{"name"}, epp+"average_kv_cache_utilization", epp+"average_queue_size", epp+"average_running_requests", epp+"ready_endpoints"),
		family("gauge", []string{"name", "model_server_endpoint"}, epp+"per_endpoint_queue_size"),
		family("gauge", []string{"commit", "build_ref"}, epp+"info"))
	if contract == "llm-d-router-0.9" {
		return all
	}
	return slices.Concat(all,
		family("gauge", []string{"inference_pool", "stage"}, fc+wire.MetricPoolSaturation),
		family("counter", []string{"outcome", "priority", "inference_pool"}, fc+wire.MetricRequestsTotal),
		family("gauge", []string{"priority", "inference_pool"}, fc+"capacity_utilization_requests", fc+"capacity_utilization_bytes"),
		family("gauge", []string{"inference_pool"}, fc+"global_capacity_utilization_requests"))
}
