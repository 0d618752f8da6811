package epconfig

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/scheduling"
)

// The shapes below exist only to print; their order is the order on paper.
type effectiveDoc struct {
	Contract      string          `yaml:"contract"`
	FlowControl   bool            `yaml:"flowControlGate"`
	EndpointsFile string          `yaml:"endpointsFile,omitempty"`
	Passthrough   bool            `yaml:"passthrough"`
	Flow          effectiveFlow   `yaml:"flowControl"`
	Scheduling    effectiveSched  `yaml:"scheduling"`
	Refusals      effectiveRefuse `yaml:"refusals"`
	Warnings      []string        `yaml:"warnings,omitempty"`
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
}

type effectiveBand struct {
	Priority    *int   `yaml:"priority,omitempty"`
	MaxRequests string `yaml:"maxRequests"`
	MaxBytes    string `yaml:"maxBytes"`
	Fairness    string `yaml:"fairnessPolicy"`
	Ordering    string `yaml:"orderingPolicy"`
}

type effectiveSched struct {
	Scorers      []effectiveScorer `yaml:"scorers"`
	MaxEndpoints int               `yaml:"maxNumOfEndpoints"`
	SubsetFilter bool              `yaml:"subsetFilter"`
}

type effectiveScorer struct {
	Type   string  `yaml:"type"`
	Weight float64 `yaml:"weight"`
}

var (
	fairnessNames = map[flowcontrol.Fairness]string{
		flowcontrol.GlobalStrict: "global-strict-fairness-policy", flowcontrol.RoundRobin: "round-robin-fairness-policy",
	}
	orderingNames = map[flowcontrol.Ordering]string{
		flowcontrol.FCFS: "fcfs-ordering-policy", flowcontrol.EDF: "edf-ordering-policy", flowcontrol.SLODeadline: "slo-deadline-ordering-policy",
	}
	scorerNames = map[scheduling.ScorerKind]string{
		scheduling.Queue: "queue-scorer", scheduling.KVUtilization: "kv-cache-utilization-scorer",
		scheduling.RunningRequests: "running-requests-size-scorer", scheduling.ActiveRequests: "active-request-scorer",
		scheduling.PrefixCache: "prefix-cache-scorer",
	}
)

// Effective prints the configuration with every default filled in, as YAML for people; it is not an EndpointPickerConfig.
func Effective(c Config) []byte {
	f, s := c.Picker.Flow, c.Picker.Scheduling
	doc := effectiveDoc{
		Contract: c.Contract.Name, FlowControl: c.FlowControl, EndpointsFile: c.EndpointsFile, Passthrough: c.Passthrough,
		Flow: effectiveFlow{
			MaxRequests: limitText(f.MaxRequests), MaxBytes: limitText(f.MaxBytes),
			DefaultRequestTTL: ttlText(f.TTL.String()), NoEndpointRequestTTL: ttlText(f.NoEndpointTTL.String()),
			EnableEviction: f.Eviction, Stages: f.Stages, Detector: detectorText(f.Detector), Ceiling: ceilingText(f.Ceiling),
			DefaultBand: bandText(f.DefaultBand, false), DefaultNegativeBand: bandText(f.DefaultNegativeBand, false),
		},
		Scheduling: effectiveSched{MaxEndpoints: s.MaxEndpoints, SubsetFilter: s.SubsetFilter},
		Refusals:   effectiveRefuse{TTLStatus: c.Contract.TTLStatus, EmptyPoolOutcomes: f.EmptyPoolOutcomes},
		Warnings:   c.Warnings,
	}
	for _, b := range f.Bands {
		doc.Flow.Bands = append(doc.Flow.Bands, bandText(b, true))
	}
	for _, sc := range s.Scorers {
		doc.Scheduling.Scorers = append(doc.Scheduling.Scorers, effectiveScorer{scorerNames[sc.Kind], sc.Weight})
	}
	out, err := yaml.Marshal(doc)
	if err != nil {
		return fmt.Appendf(nil, "# the configuration cannot be printed: %v\n", err)
	}
	return out
}

func limitText(v int64) string {
	if v == 0 {
		return "unlimited"
	}
	return fmt.Sprint(v)
}

func ttlText(s string) string {
	if s == "0s" {
		return "none"
	}
	return s
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
		m["type"], m["maxConcurrency"] = "concurrency-detector", d.MaxConcurrency
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
	domain := "rank"
	if c.ByValue {
		domain = "value"
	}
	return map[string]any{"type": "priority-holdback-policy", "minCeiling": c.Min, "maxCeiling": c.Max, "domain": domain}
}
