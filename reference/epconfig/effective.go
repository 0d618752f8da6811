package epconfig

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/scheduling"
)

// The shapes below exist only to print; their order is the order on paper.
type effectiveDoc struct {
	Contract      string          `yaml:"contract"`
	FlowControl   bool            `yaml:"flowControlGate"`
	Legacy        *effectiveShed  `yaml:"legacyAdmission,omitempty"`
	EndpointsFile string          `yaml:"endpointsFile,omitempty"`
	Passthrough   bool            `yaml:"passthrough"`
	Sessions      []string        `yaml:"sessionHeaders,omitempty,flow"`
	Flow          *effectiveFlow  `yaml:"flowControl,omitempty"`
	Scheduling    effectiveSched  `yaml:"scheduling"`
	Refusals      effectiveRefuse `yaml:"refusals"`
	Warnings      []string        `yaml:"warnings,omitempty"`
}

// effectiveShed is what remains with the gate off: negative priorities are refused at a saturated pool, nothing waits.
type effectiveShed struct {
	ShedAtSaturation float64        `yaml:"shedNegativePrioritiesAtSaturation"`
	Detector         map[string]any `yaml:"saturationDetector"`
}

type effectiveRefuse struct {
	TTLStatus         int  `yaml:"ttlStatus"`
	EmptyPoolOutcomes bool `yaml:"emptyPoolOutcomes"`
}

type effectiveFlow struct {
	MaxRequests          string          `yaml:"maxRequests"`
	MaxBytes             string          `yaml:"maxBytes"`
	DefaultRequestTTL    string          `yaml:"defaultRequestTTL"`
	NoEndpointRequestTTL string          `yaml:"noEndpointRequestTTL"`
	EnableEviction       bool            `yaml:"enableEviction"`
	Stages               bool            `yaml:"stages"`
	Detector             map[string]any  `yaml:"saturationDetector"`
	Ceiling              map[string]any  `yaml:"usageLimitPolicy"`
	Bands                []effectiveBand `yaml:"priorityBands"`
	DefaultBand          effectiveBand   `yaml:"defaultPriorityBand"`
	DefaultNegativeBand  effectiveBand   `yaml:"defaultNegativePriorityBand"`
	ProgramAware         map[string]any  `yaml:"programAwareFairness,omitempty"`
}

type effectiveBand struct {
	Priority    *int   `yaml:"priority,omitempty"`
	MaxRequests string `yaml:"maxRequests"`
	MaxBytes    string `yaml:"maxBytes"`
	Fairness    string `yaml:"fairnessPolicy"`
	Ordering    string `yaml:"orderingPolicy"`
}

type effectiveSched struct {
	Filters      []effectiveFilter `yaml:"labelFilters,omitempty"`
	Scorers      []effectiveScorer `yaml:"scorers"`
	Prefix       map[string]int    `yaml:"prefixCache,omitempty"`
	MaxEndpoints int               `yaml:"maxNumOfEndpoints"`
	SubsetFilter bool              `yaml:"subsetFilter"`
}

type effectiveFilter struct {
	Label   string   `yaml:"label"`
	Values  []string `yaml:"values,omitempty,flow"`
	Missing bool     `yaml:"orWithoutLabel,omitempty"`
}

type effectiveScorer struct {
	Type   string  `yaml:"type"`
	Weight float64 `yaml:"weight"`
}

var (
	fairnessNames = map[flowcontrol.Fairness]string{
		flowcontrol.GlobalStrict: "global-strict-fairness-policy", flowcontrol.RoundRobin: "round-robin-fairness-policy",
		flowcontrol.ProgramAware: "program-aware-fairness",
	}
	modeNames = map[flowcontrol.ConcurrencyMode]string{
		flowcontrol.Requests: "requests", flowcontrol.Tokens: "tokens", flowcontrol.Hybrid: "hybrid",
	}
	orderingNames = map[flowcontrol.Ordering]string{
		flowcontrol.FCFS: "fcfs-ordering-policy", flowcontrol.EDF: "edf-ordering-policy", flowcontrol.SLODeadline: "slo-deadline-ordering-policy",
	}
	scorerNames = map[scheduling.ScorerKind]string{
		scheduling.Queue: "queue-scorer", scheduling.KVUtilization: "kv-cache-utilization-scorer",
		scheduling.RunningRequests: "running-requests-size-scorer", scheduling.ActiveRequests: "active-request-scorer",
		scheduling.PrefixCache: "prefix-cache-scorer", scheduling.LoRAAffinity: "lora-affinity-scorer",
	}
)

// Effective prints the configuration with every default filled in, as YAML for people; it is not an EndpointPickerConfig.
func Effective(c Config) []byte {
	doc := effectiveDoc{
		Contract: c.Contract.Name, FlowControl: c.FlowControl, EndpointsFile: c.EndpointsFile, Passthrough: c.Passthrough,
		Sessions: c.SessionHeaders, Scheduling: schedulingText(c.Picker.Scheduling),
		Refusals: effectiveRefuse{TTLStatus: c.Contract.TTLStatus, EmptyPoolOutcomes: c.Picker.Flow.EmptyPoolOutcomes},
		Warnings: c.Warnings,
	}
	if c.FlowControl {
		doc.Flow = flowText(c.Picker.Flow)
	} else {
		doc.Legacy = &effectiveShed{LegacyCeiling, detectorText(c.Picker.Flow.Detector)}
	}
	out, err := yaml.Marshal(doc)
	if err != nil {
		return fmt.Appendf(nil, "# the configuration cannot be printed: %v\n", err)
	}
	return out
}

func flowText(f flowcontrol.Config) *effectiveFlow {
	out := &effectiveFlow{
		MaxRequests: limitText(f.MaxRequests), MaxBytes: limitText(f.MaxBytes),
		DefaultRequestTTL: ttlText(f.TTL), NoEndpointRequestTTL: ttlText(f.NoEndpointTTL),
		EnableEviction: f.Eviction, Stages: f.Stages, Detector: detectorText(f.Detector), Ceiling: ceilingText(f.Ceiling),
		DefaultBand: bandText(f.DefaultBand, false), DefaultNegativeBand: bandText(f.DefaultNegativeBand, false),
	}
	aware := f.DefaultBand.Fairness == flowcontrol.ProgramAware || f.DefaultNegativeBand.Fairness == flowcontrol.ProgramAware
	for _, b := range f.Bands {
		out.Bands = append(out.Bands, bandText(b, true))
		aware = aware || b.Fairness == flowcontrol.ProgramAware
	}
	if p := f.ProgramAware; aware {
		out.ProgramAware = map[string]any{"lasWeightService": p.WeightService, "lasWeightHeadWait": p.WeightHeadWait,
			"lasHalfLife": ttlText(p.HalfLife), "evictionTtl": ttlText(p.IdleTTL)}
	}
	return out
}

func schedulingText(s scheduling.Config) effectiveSched {
	out := effectiveSched{MaxEndpoints: s.MaxEndpoints, SubsetFilter: s.SubsetFilter}
	for _, f := range s.Labels {
		out.Filters = append(out.Filters, effectiveFilter{f.Key, f.Values, f.Missing})
	}
	for _, sc := range s.Scorers {
		out.Scorers = append(out.Scorers, effectiveScorer{scorerNames[sc.Kind], sc.Weight})
		if sc.Kind == scheduling.PrefixCache {
			out.Prefix = map[string]int{"blockTokens": s.Prefix.BlockTokens, "maxBlocks": s.Prefix.MaxBlocks, "lruCapacityPerServer": s.Prefix.LRUCapacity}
		}
	}
	return out
}

func limitText(v int64) string {
	if v == 0 {
		return "unlimited"
	}
	return fmt.Sprint(v)
}

func ttlText(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return d.String()
}

func bandText(b flowcontrol.BandConfig, priority bool) effectiveBand {
	out := effectiveBand{
		MaxRequests: limitText(b.MaxRequests), MaxBytes: limitText(b.MaxBytes),
		Fairness: fairnessNames[b.Fairness], Ordering: orderingNames[b.Ordering],
	}
	if priority {
		out.Priority = &b.Priority
	}
	return out
}

func detectorText(d flowcontrol.DetectorConfig) map[string]any {
	m := map[string]any{"headroom": d.Headroom, "filter": d.Filter, "filterFailOpen": d.FilterFailOpen}
	if d.Kind == flowcontrol.Concurrency {
		m["type"], m["concurrencyMode"] = "concurrency-detector", modeNames[d.Mode]
		m["maxConcurrency"], m["maxTokenConcurrency"] = d.MaxConcurrency, d.MaxTokens
		if d.ForeignLimit == 0 {
			m["syncCrossReplicaState"] = false
		}
		if d.Mode == flowcontrol.Requests {
			return m
		}
		m["addEstimatedOutputTokens"] = d.EstimateOutput
		if d.EstimateOutput {
			m["outputRatio"], m["maxEstimatedOutputTokens"] = d.OutputRatio, limitText(d.MaxEstimatedOutput)
		}
		return m
	}
	m["type"], m["queueDepthThreshold"] = "utilization-detector", d.QueueDepth
	m["kvCacheUtilThreshold"], m["metricsStalenessThreshold"] = d.KVUtil, d.Staleness.String()
	return m
}

func ceilingText(c flowcontrol.CeilingConfig) map[string]any {
	if c.Kind == flowcontrol.Static {
		return map[string]any{"type": "static-usage-limit-policy", "threshold": c.Threshold}
	}
	if c.Kind == flowcontrol.SoftReflective {
		return map[string]any{"type": "soft-reflective-ceiling-policy"}
	}
	domain := "rank"
	if c.ByValue {
		domain = "value"
	}
	return map[string]any{"type": "priority-holdback-policy", "minCeiling": c.Min, "maxCeiling": c.Max, "domain": domain}
}
