// Package wire holds the names that travel on the wire and the small codecs around them.
//
// Nothing in here decides anything: headers, dropped reasons, outcome words and metric names are spelled once, so that the
// reference, the load generator and the checks cannot drift apart by a typo. What an implementation must answer is not here
// but in harness/profile; what the reference answers is in Refuse.
package wire

// Request headers of the endpoint picker contract (spec/endpoint-picker.md §2.1). A canonical header wins over its deprecated
// alias by presence: an empty canonical value suppresses the alias.
const (
	HeaderObjective         = "x-llm-d-inference-objective"
	HeaderObjectiveAlias    = "x-gateway-inference-objective"
	HeaderFairnessID        = "x-llm-d-inference-fairness-id"
	HeaderFairnessIDAlias   = "x-gateway-inference-fairness-id"
	HeaderModelRewrite      = "x-llm-d-model-name-rewrite"
	HeaderModelRewriteAlias = "x-gateway-model-name-rewrite"
	HeaderTTFT              = "x-llm-d-slo-ttft-ms"
	HeaderTTFTAlias         = "x-slo-ttft-ms"
	HeaderTPOT              = "x-llm-d-slo-tpot-ms"
	HeaderTPOTAlias         = "x-slo-tpot-ms"
	HeaderRequestID         = "x-request-id"
)

// Headers and metadata of the destination (spec/endpoint-picker.md §1.3, §1.4).
const (
	HeaderDestination       = "x-gateway-destination-endpoint"
	HeaderDestinationServed = "x-gateway-destination-endpoint-served"
	MetadataLB              = "envoy.lb"
	MetadataSubset          = "envoy.lb.subset_hint"
	KeySubset               = "x-gateway-destination-endpoint-subset"
)

// HeaderDroppedReason names the cause of a refusal in the response (FC-REF-01).
const HeaderDroppedReason = "x-llm-d-request-dropped-reason"

// Values of HeaderDroppedReason (spec/endpoint-picker.md §5).
const (
	ReasonSaturated        = "rejected-saturated"
	ReasonNoEndpoints      = "rejected-no-endpoints"
	ReasonTTLExpired       = "rejected-ttl-expired"
	ReasonContextCancelled = "rejected-context-cancelled"
	ReasonShuttingDown     = "rejected-shutting-down"
	ReasonEvicted          = "evicted"
)

// Headers with which the harness marks and steers its own traffic. A router that forwards unknown request headers, as every
// HTTP proxy does, carries them to the simulated model server.
const (
	// HeaderID is the harness's own name of a request: unique in a run, and the key that joins client and backend records.
	// It is not x-request-id, because some scenarios reuse that one on purpose.
	HeaderID = "x-weir-id"
	// HeaderScenario names the scenario a request belongs to.
	HeaderScenario = "x-weir-scenario"
	// HeaderHoldAfter asks a holding model server to send that many tokens before it holds the response (default 0: nothing,
	// not even response headers, is sent before the release).
	HeaderHoldAfter = "x-weir-hold-after"
	// HeaderPassHold asks a holding model server not to hold this one request.
	HeaderPassHold = "x-weir-pass-hold"
	// HeaderOutputTokens tells the simulator the true output length in tokens, which a client of a real server cannot know and no
	// router may use.
	HeaderOutputTokens = "x-weir-output-tokens"
	// HeaderServedBy is the endpoint name with which the simulator answers.
	HeaderServedBy = "x-weir-served-by"
	// HeaderSubset asks weir's gateway to put a comma-separated list of "ip:port" into the subset metadata, as a data plane with
	// a subsetting route would. It is an instruction to the gateway and is not forwarded.
	HeaderSubset = "x-weir-subset"
	// HeaderForm asks weir's gateway how header values are carried towards the picker: FormRaw (default, as Envoy does), FormValue or
	// FormBoth; FormUpper sends the names in capitals. More than one are separated by commas. Like the next three it is an instruction
	// to the gateway and is not forwarded.
	HeaderForm = "x-weir-header-form"
	// HeaderRepeat adds "name=value" behind the request's other headers towards the picker, a second value of a name that is there.
	HeaderRepeat = "x-weir-repeat-header"
	// HeaderDeadline is a deadline of the ext_proc stream, a Go duration.
	HeaderDeadline = "x-weir-stream-deadline"
	// HeaderHalfClose ends the gateway's side of the ext_proc stream behind the request body; the response is not processed.
	HeaderHalfClose = "x-weir-half-close"
	// HeaderAnswer asks the simulator for an answer by name instead of a generated one (package sim-vllm/server).
	HeaderAnswer = "x-weir-answer"
)

// Values of HeaderForm.
const (
	FormRaw   = "raw"
	FormValue = "value"
	FormBoth  = "both"
	FormUpper = "upper"
)

// DefaultFlow is the fairness id of a request that names none (spec/endpoint-picker.md §2.4).
const DefaultFlow = "default-flow"

// BodyByteLimit is the largest streamed_response chunk in bytes (spec/endpoint-picker.md §1.3).
const BodyByteLimit = 62000

// ControlHeaders are the request headers addressed to the picker; whether they reach the model server is recorded (FC-PROTO-08).
var ControlHeaders = []string{
	HeaderObjective, HeaderObjectiveAlias, HeaderFairnessID, HeaderFairnessIDAlias, HeaderModelRewrite, HeaderModelRewriteAlias,
	HeaderTTFT, HeaderTTFTAlias, HeaderTPOT, HeaderTPOTAlias, HeaderDestination, HeaderDestinationServed, KeySubset, HeaderDroppedReason,
}
