package asyncconfig

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/llm-weir/weir/reference/async"
)

// SourceKind is the closed set of what a gate can read.
type SourceKind uint8

// The sources.
const (
	RedisKey SourceKind = iota // a number under Key at Address
	PromQL                     // the first sample of Query
	Page                       // Metric with Labels on a metrics page at URL
)

// Source is where a gate's value comes from. Equal sources are one.
type Source struct {
	Kind    SourceKind
	Address string
	Key     string
	Query   string
	URL     string
	Metric  string
	Labels  string // JSON object, canonical
	TTL     time.Duration
}

// pageTTL keeps the messages of one burst from fetching a page each.
const pageTTL = 100 * time.Millisecond

// gateTypes are the known values of gate_type.
var gateTypes = []string{"constant", "redis", "prometheus-saturation", "prometheus-budget", "prometheus-query", "endpoint-scrape",
	"local-max-concurrency", "redis-quota", "tier-priority-admission", "composite", "wait-on-refuse"}

// source gives the index of a source, which stays the same over reloads.
func (l *Loader) source(s Source) async.SourceID {
	if i, ok := l.index[s]; ok {
		return i
	}
	i := async.SourceID(len(l.sources))
	l.sources = append(l.sources, s)
	l.index[s] = i
	return i
}

// gateOf reads gate_type and gate_params of an entry; nil is the open gate.
func (l *Loader) gateOf(o object) *async.Gate {
	typ := o.str("gate_type", "")
	if typ == "" {
		if o.has("gate_params") && len(o.by["gate_params"].value.fields) > 0 {
			o.fail("gate_params", "there is no gate_type that could take them")
		}
		return nil
	}
	raw, ok := o.want("gate_params", kindObject)
	if !ok {
		raw = &node{kind: kindObject, line: o.line("gate_type")}
	}
	return l.gate(o, "gate_type", typ, join(o.path, "gate_params"), raw)
}

// nested reads a {gate_type, gate_params} object inside another gate.
func (l *Loader) nested(p params, path string, n *node) *async.Gate {
	o := l.object(p.file, path, n, "gate_type", "gate_params")
	if len(o.by) > 0 || n.kind == kindObject {
		o.required("gate_type")
	}
	if g := l.gateOf(o); g != nil {
		return g
	}
	return &async.Gate{}
}

// gate reads one gate (spec/async-processor.md §4).
func (l *Loader) gate(at object, key, typ, path string, raw *node) *async.Gate {
	known := map[string][]string{
		"constant": {}, "redis": {"address", "budget_key"}, "prometheus-saturation": {"pool", "namespace", "threshold", "fallback"},
		"prometheus-budget": {"pool", "namespace", "max_concurrency", "baseline", "fallback"}, "prometheus-query": {"query", "fallback", "pool"},
		"endpoint-scrape":         {"url", "metric", "labels", "max_count_per_pod", "baseline", "fallback", "pods_url", "pods_metric", "pods_labels"},
		"local-max-concurrency":   {"limit", "gating_mode"},
		"redis-quota":             {"address", "attribute", "mode", "limit", "window", "prefix", "gating_mode"},
		"tier-priority-admission": {"saturation_gate", "saturation_gate_params", "tier_label"}, "composite": {"gates"}, "wait-on-refuse": {"gate"},
	}
	names, ok := known[typ]
	if !ok {
		l.tolerate("%s:%d: %s: unknown gate type %q, which would be always open; known: %s", at.file, at.line(key), join(at.path, key), typ,
			strings.Join(gateTypes, ", "))
		return nil
	}
	p := params{l.object(at.file, path, raw, names...)}
	switch typ {
	case "redis":
		return &async.Gate{Kind: async.RedisBudget, Sources: []async.SourceID{l.source(Source{Kind: RedisKey, Address: l.address(p),
			Key: p.str("budget_key", "dispatch-gate-budget")})}}
	case "prometheus-saturation", "prometheus-budget", "prometheus-query":
		return l.promGate(typ, p)
	case "endpoint-scrape":
		return l.scrapeGate(p)
	case "local-max-concurrency":
		return &async.Gate{Kind: async.LocalMaxConcurrency, Limit: p.positive("limit"),
			Blocking: p.choice("gating_mode", "classifying", "classifying", "blocking") == "blocking"}
	case "redis-quota":
		return &async.Gate{Kind: async.RedisQuota, Quota: &async.Quota{Address: l.address(p), Prefix: p.str("prefix", "quota:"),
			Attribute: p.str("attribute", "userid"), Concurrency: p.choice("mode", "rate-limit", "rate-limit", "concurrency") == "concurrency",
			Limit: int64(p.positive("limit")), Window: p.duration("window", time.Minute),
			Classify: p.choice("gating_mode", "blocking", "blocking", "classifying") == "classifying"}}
	case "tier-priority-admission":
		return l.tierGate(p)
	case "composite":
		return l.compositeGate(p)
	case "wait-on-refuse":
		if n := p.document("gate"); n != nil {
			return &async.Gate{Kind: async.WaitOnRefuse, Inner: []*async.Gate{l.nested(p, join(p.path, "gate"), n)}}
		}
		if !p.has("gate") {
			p.fail("gate", "is required: the gate to wrap, as JSON {gate_type, gate_params}")
		}
		return nil
	}
	return &async.Gate{Kind: async.Constant}
}

func (l *Loader) address(p params) string {
	a := p.required("address")
	if a != "" {
		if _, _, err := net.SplitHostPort(a); err != nil {
			p.fail("address", `expected "host:port", got %q`, a)
		}
	}
	return a
}

func (l *Loader) promGate(typ string, p params) *async.Gate {
	if l.flags.PrometheusURL == "" {
		p.r.failf("%s:%d: %s: gate %s needs --prometheus-url", p.file, p.node.line, p.path, typ)
	}
	ask := func(queries ...string) (out []async.SourceID) {
		for _, q := range queries {
			out = append(out, l.source(Source{Kind: PromQL, Query: q, TTL: l.flags.PrometheusCacheTTL}))
		}
		return out
	}
	g := &async.Gate{Inference: p.str("pool", ""), Fallback: p.number("fallback", 0, 0, 1)}
	switch typ {
	case "prometheus-saturation":
		g.Kind, g.Threshold = async.PrometheusSaturation, p.number("threshold", 0.8, 0, 1)
		p.params("pool")
		g.Sources = ask(saturationQueries(g.Inference, p.str("namespace", ""))...)
	case "prometheus-budget":
		g.Kind, g.Baseline = async.PrometheusBudget, p.number("baseline", 0.05, 0, math.Nextafter(1, 0))
		m := p.number("max_concurrency", 100, math.SmallestNonzeroFloat64, math.MaxFloat64)
		p.params("pool")
		queries := budgetQueries(g.Inference, p.str("namespace", ""), m)
		g.Sources = ask(queries...)
		l.info = append(l.info, fmt.Sprintf("prometheus-budget gate configured pool=%s maxConcurrency=%g baseline=%g closesAtLoadPerReadyPod=%g",
			g.Inference, m, g.Baseline, m*(1-g.Baseline)))
		for i, q := range queries {
			l.info = append(l.info, fmt.Sprintf("prometheus-budget metric source pool=%s source=%d query=%q", g.Inference, i, q))
		}
	case "prometheus-query":
		g.Kind = async.PrometheusQuery
		g.Sources = ask(p.required("query"))
	}
	return g
}

// params demands some parameters.
func (p params) params(keys ...string) {
	for _, k := range keys {
		p.required(k)
	}
}

func (l *Loader) scrapeGate(p params) *async.Gate {
	g := &async.Gate{Kind: async.EndpointScrape, MaxCountPerPod: p.number("max_count_per_pod", 0, 0, math.MaxFloat64),
		Baseline: p.number("baseline", 0, 0, 1), Fallback: p.number("fallback", 0, 0, 1)}
	page := func(url, metric, labels string) async.SourceID {
		return l.source(Source{Kind: Page, URL: p.page(url), Metric: p.required(metric), Labels: p.labels(labels), TTL: pageTTL})
	}
	g.Sources = []async.SourceID{page("url", "metric", "labels")}
	switch {
	case p.has("pods_url") || p.has("pods_metric"):
		g.Sources = append(g.Sources, page("pods_url", "pods_metric", "pods_labels"))
	case p.has("pods_labels"):
		p.fail("pods_labels", "has no effect without pods_url and pods_metric")
	}
	return g
}

func (p params) page(key string) string {
	text := p.required(key)
	if u, err := url.Parse(text); text != "" && (err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "") {
		p.fail(key, "expected a URL such as http://host:8000/metrics, got %q", text)
	}
	return text
}

// labels is an object of strings in canonical form, so that equal filters are one source.
func (p params) labels(key string) string {
	n := p.document(key)
	if n == nil {
		return "{}"
	}
	o := object{r: p.r, file: p.file, path: p.path, node: n, by: map[string]field{key: {name: key, line: n.line, value: n}}}
	return encodeMap(o.stringMap(key))
}

func (l *Loader) tierGate(p params) *async.Gate {
	g := &async.Gate{Kind: async.TierPriorityAdmission, TierLabel: p.str("tier_label", "tier")}
	typ := p.required("saturation_gate")
	raw := p.document("saturation_gate_params")
	if raw == nil {
		raw = &node{kind: kindObject, line: p.node.line}
	}
	if typ == "" {
		return nil
	}
	inner := l.gate(p.object, "saturation_gate", typ, join(p.path, "saturation_gate_params"), raw)
	if inner == nil {
		inner = &async.Gate{}
	}
	g.Inner = []*async.Gate{inner}
	return g
}

func (l *Loader) compositeGate(p params) *async.Gate {
	n := p.document("gates")
	switch {
	case n == nil && !p.has("gates"):
		p.fail("gates", "is required: a JSON array of {gate_type, gate_params}")
		return nil
	case n == nil:
		return nil
	case n.kind != kindArray:
		p.fail("gates", "expected a JSON array of {gate_type, gate_params}, got %s", n.kind)
		return nil
	case len(n.items) == 0:
		p.fail("gates", "is empty")
		return nil
	}
	g := &async.Gate{Kind: async.Composite}
	for i, item := range n.items {
		g.Inner = append(g.Inner, l.nested(p, fmt.Sprintf("%s.gates[%d]", p.path, i), item))
	}
	return g
}
