package wire

// Prefixes under which a picker publishes its flow-control series (spec/endpoint-picker.md §7).
const (
	PrefixEPP         = "llm_d_epp_"
	PrefixFlowControl = "llm_d_epp_flow_control_"
	PrefixLegacyFC    = "inference_extension_flow_control_"
	PrefixLegacyPool  = "inference_pool_"
)

// Flow-control metric names without their prefix (spec/endpoint-picker.md §7.3).
const (
	MetricQueueSize      = "queue_size"
	MetricQueueBytes     = "queue_bytes"
	MetricPoolSaturation = "pool_saturation"
	MetricQueueDuration  = "request_queue_duration_seconds"
	MetricRequestsTotal  = "requests_total"
)

// Model-server metrics a picker reads (spec/endpoint-picker.md §8.3, spec/vllm.md §2.7).
const (
	VLLMWaiting     = "vllm:num_requests_waiting"
	VLLMRunning     = "vllm:num_requests_running"
	VLLMKVUsage     = "vllm:kv_cache_usage_perc"
	VLLMPreemptions = "vllm:num_preemptions_total"
	VLLMCacheCfg    = "vllm:cache_config_info"
	VLLMLoRAInfo    = "vllm:lora_requests_info"
)
