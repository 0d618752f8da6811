package asyncconfig

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// matcher writes a selector's labels: name="value" pairs in the order given, then the namespace if there is one.
func matcher(label, value, namespace string) string {
	s := label + "=" + strconv.Quote(value)
	if namespace != "" {
		s += ",namespace=" + strconv.Quote(namespace)
	}
	return "{" + s + "}"
}

// saturationQueries ask for the room that is left, under the metric's names of both generations of pickers: where a picker publishes
// only one of them, the other source is empty (AP-GATE-11, K12).
func saturationQueries(pool, namespace string) []string {
	var out []string
	for _, name := range []string{"inference_extension_flow_control_pool_saturation", "llm_d_epp_flow_control_pool_saturation"} {
		out = append(out, "1 - "+name+matcher("inference_pool", pool, namespace))
	}
	return out
}

// budgetQueries are the cascade of AP-GATE-16 to AP-GATE-19, each source under the names of both generations. The newer forms aggregate
// what several pickers publish, which the older ones would refuse to match.
func budgetQueries(pool, namespace string, perPod float64) []string {
	byPool, byName := matcher("inference_pool", pool, namespace), matcher("name", pool, namespace)
	m := fmt.Sprintf("%g", perPod)
	return []string{
		"1 - (sum by(inference_pool)(inference_extension_flow_control_queue_size" + byPool + ") / on() (inference_pool_ready_pods" + byName + " * " + m + "))",
		"1 - (sum(llm_d_epp_flow_control_queue_size" + byPool + ") / (max(llm_d_epp_ready_endpoints" + byName + ") * " + m + "))",
		"1 - (avg by(name)(inference_pool_per_pod_queue_size" + byName + ") / " + m + ")",
		"1 - (avg(llm_d_epp_per_endpoint_queue_size" + byName + ") / " + m + ")",
		"1 - (sum(vllm:num_requests_running" + byPool + ") / on() (inference_pool_ready_pods" + byName + " * " + m + "))",
		"1 - (sum(vllm:num_requests_running" + byPool + ") / (max(llm_d_epp_ready_endpoints" + byName + ") * " + m + "))",
	}
}

// encodeMap is a JSON object with sorted keys.
func encodeMap(m map[string]string) string {
	if len(m) == 0 {
		return "{}"
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings
	}
	return strings.TrimSpace(string(b))
}
