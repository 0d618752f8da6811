package epconfig

import (
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/reference/flowcontrol"
)

// defaultDetector is a utilization-detector without parameters.
func defaultDetector() flowcontrol.DetectorConfig {
	return flowcontrol.DetectorConfig{
		Kind: flowcontrol.Utilization, QueueDepth: 5, KVUtil: 0.8, Staleness: 200 * time.Millisecond, FilterFailOpen: true,
	}
}

func (l *loader) utilization(n *yaml.Node, path string, keys []string) detector {
	d := defaultDetector()
	o := l.object(n, path, keys...)
	d.QueueDepth = o.integer("queueDepthThreshold", d.QueueDepth)
	d.KVUtil = o.number("kvCacheUtilThreshold", d.KVUtil)
	d.Staleness = o.duration("metricsStalenessThreshold", d.Staleness)
	d.Headroom = l.headroom(o)
	if d.QueueDepth <= 0 {
		l.fail(o.at("queueDepthThreshold"), "%s.queueDepthThreshold: must be above 0, got %d", path, d.QueueDepth)
	}
	if d.KVUtil <= 0 || d.KVUtil > 1 {
		l.fail(o.at("kvCacheUtilThreshold"), "%s.kvCacheUtilThreshold: must be in (0,1], got %v", path, d.KVUtil)
	}
	if d.Staleness <= 0 {
		l.fail(o.at("metricsStalenessThreshold"), "%s.metricsStalenessThreshold: must be above 0, got %v", path, d.Staleness)
	}
	return detector{DetectorConfig: d}
}

func (l *loader) concurrency(n *yaml.Node, path string) detector {
	d := flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, FilterFailOpen: l.c.ConcurrencyFailOpen}
	o := l.object(n, path, "concurrencyMode", "maxConcurrency", "maxTokenConcurrency", "headroom", "inFlightLoadProducerName")
	switch mode := o.str("concurrencyMode", "requests"); {
	case mode == "requests":
		d.Mode = flowcontrol.Requests
	case mode == "tokens":
		d.Mode = flowcontrol.Tokens
	case mode == "hybrid" && l.c.Hybrid:
		d.Mode = flowcontrol.Hybrid
	case mode == "hybrid":
		l.fail(o.at("concurrencyMode"), "%s.concurrencyMode: \"hybrid\" does not exist in contract %s: use requests or tokens", path, l.c.Name)
	default:
		l.fail(o.at("concurrencyMode"), "%s.concurrencyMode: unknown mode %q", path, mode)
	}
	d.MaxConcurrency = o.integer("maxConcurrency", 100)
	if d.MaxConcurrency <= 0 {
		l.fail(o.at("maxConcurrency"), "%s.maxConcurrency: must be above 0, got %d", path, d.MaxConcurrency)
	}
	d.MaxTokens = o.quantity("maxTokenConcurrency", 1e6)
	if d.MaxTokens <= 0 {
		l.fail(o.at("maxTokenConcurrency"), "%s.maxTokenConcurrency: must be above 0, got %d", path, d.MaxTokens)
	}
	d.Headroom = l.headroom(o)
	out := detector{DetectorConfig: d}
	if o.str("inFlightLoadProducerName", "") != "" {
		out.producer = o.fields["inFlightLoadProducerName"].value
	}
	return out
}

func (l *loader) headroom(o object) float64 {
	h := o.number("headroom", 0)
	if h < 0 {
		l.fail(o.at("headroom"), "%s.headroom: must not be negative, got %v", o.path, h)
	}
	if h > 1 {
		l.warnAt(o.at("headroom"), "%s.headroom: %v more than doubles the filter boundary", o.path, h)
	}
	return h
}

// defaultEstimate is an inflight-load-producer without parameters.
func defaultEstimate() estimate { return estimate{ratio: 1.5, sync: true} }

func (l *loader) loadProducer(n *yaml.Node, path string) estimate {
	keys := []string{"syncCrossReplicaState", "prefixMatchInfoProducerName", "addEstimatedOutputTokens", "maxEstimatedOutputTokens"}
	if l.c.Hybrid {
		keys = append(keys, "outputRatio")
	}
	o := l.object(n, path, keys...)
	e := defaultEstimate()
	e.output = o.boolean("addEstimatedOutputTokens", false)
	if e.ratio = o.number("outputRatio", e.ratio); e.ratio <= 0 {
		l.fail(o.at("outputRatio"), "%s.outputRatio: must be above 0, got %v", path, e.ratio)
	}
	if e.max = o.quantity("maxEstimatedOutputTokens", 0); e.max < 0 {
		l.fail(o.at("maxEstimatedOutputTokens"), "%s.maxEstimatedOutputTokens: must not be negative, got %d", path, e.max)
	}
	e.sync = o.boolean("syncCrossReplicaState", e.sync)
	if o.str("prefixMatchInfoProducerName", "") != "" {
		l.warnAt(o.at("prefixMatchInfoProducerName"), "%s.prefixMatchInfoProducerName: has no effect in this build, every prompt token counts", path)
	}
	return e
}

// defaultProgramAware is a program-aware-fairness without parameters.
func (l *loader) defaultProgramAware() flowcontrol.ProgramAwareConfig {
	return flowcontrol.ProgramAwareConfig{WeightService: 0.8, WeightHeadWait: 0.2, HalfLife: l.c.ProgramHalfLife, IdleTTL: time.Hour}
}

func (l *loader) programAwareFairness(n *yaml.Node, path string) flowcontrol.ProgramAwareConfig {
	keys := []string{"strategy", "evictionTtlSeconds", "evictionSweepSeconds", "lasWeightService", "lasWeightHeadWait", "lasHalfLifeSeconds"}
	if l.c.DecayFactor {
		keys = append(keys, "lasDecayFactor")
	}
	o := l.object(n, path, keys...)
	c := l.defaultProgramAware()
	if s := o.str("strategy", ""); s != "" && s != "las" {
		l.fail(o.at("strategy"), "%s.strategy: %q is unknown, only \"las\" is", path, s)
	}
	c.WeightService = l.atLeastZero(o, "lasWeightService", c.WeightService)
	c.WeightHeadWait = l.atLeastZero(o, "lasWeightHeadWait", c.WeightHeadWait)
	c.HalfLife = l.seconds(o, "lasHalfLifeSeconds", c.HalfLife)
	c.IdleTTL = l.seconds(o, "evictionTtlSeconds", c.IdleTTL)
	if sweep := o.number("evictionSweepSeconds", 300); sweep <= 0 {
		l.fail(o.at("evictionSweepSeconds"), "%s.evictionSweepSeconds: must be above 0, got %v", path, sweep)
	} else if o.has("evictionSweepSeconds") {
		l.warnAt(o.at("evictionSweepSeconds"), "%s.evictionSweepSeconds: has no effect in this build, service is forgotten at evictionTtlSeconds exactly", path)
	}
	if f := o.number("lasDecayFactor", 0.99997); f <= 0 || f > 1 {
		l.fail(o.at("lasDecayFactor"), "%s.lasDecayFactor: must be in (0,1], got %v", path, f)
	} else if o.has("lasDecayFactor") {
		l.warnAt(o.at("lasDecayFactor"), "%s.lasDecayFactor: has no effect in this build, use lasHalfLifeSeconds", path)
	}
	return c
}

func (l *loader) atLeastZero(o object, key string, absent float64) float64 {
	v := o.number(key, absent)
	if v < 0 {
		l.fail(o.at(key), "%s: must not be negative, got %v", join(o.path, key), v)
	}
	return v
}

// seconds reads a number of seconds; at most a century, so that it fits a duration.
func (l *loader) seconds(o object, key string, absent time.Duration) time.Duration {
	const century = 100 * 365 * 24 * 3600
	v := l.atLeastZero(o, key, absent.Seconds())
	if v > century {
		l.fail(o.at(key), "%s: must be at most %d, got %v", join(o.path, key), century, v)
		return absent
	}
	return time.Duration(v * float64(time.Second))
}

// static reads the one ceiling of all bands. Routers do not enforce the documented range (spec/endpoint-picker.md §3.4).
func (l *loader) static(n *yaml.Node, path string) flowcontrol.CeilingConfig {
	o := l.object(n, path, "threshold")
	c := flowcontrol.CeilingConfig{Kind: flowcontrol.Static, Threshold: o.number("threshold", 1)}
	switch {
	case c.Threshold <= 0:
		l.warnAt(o.at("threshold"), "%s.threshold: %v is outside (0,1], nothing is ever dispatched", path, c.Threshold)
	case c.Threshold > 1:
		l.warnAt(o.at("threshold"), "%s.threshold: %v is outside (0,1], the pool is overcommitted", path, c.Threshold)
	}
	return c
}

func (l *loader) holdback(n *yaml.Node, path string) flowcontrol.CeilingConfig {
	o := l.object(n, path, "shape", "domain", "minCeiling", "maxCeiling")
	c := flowcontrol.CeilingConfig{Kind: flowcontrol.Holdback, Min: o.number("minCeiling", 0), Max: o.number("maxCeiling", 1)}
	if s := o.str("shape", "linear"); s != "linear" {
		l.fail(o.at("shape"), "%s.shape: %q is unknown, only \"linear\" is", path, s)
	}
	switch d := o.str("domain", "rank"); d {
	case "rank":
	case "value":
		c.ByValue = true
	default:
		l.fail(o.at("domain"), "%s.domain: %q is neither \"rank\" nor \"value\"", path, d)
	}
	switch {
	case !o.has("minCeiling"):
		l.fail(o.node, "%s.minCeiling: missing", path)
	case c.Min < 0 || c.Min >= 1:
		l.fail(o.at("minCeiling"), "%s.minCeiling: must be in [0,1), got %v", path, c.Min)
	case c.Min >= c.Max:
		l.fail(o.at("minCeiling"), "%s.minCeiling: %v must be below maxCeiling %v", path, c.Min, c.Max)
	}
	if c.Max <= 0 || c.Max > 1 {
		l.fail(o.at("maxCeiling"), "%s.maxCeiling: must be in (0,1], got %v", path, c.Max)
	}
	return c
}
