package kube

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/picker"
)

// Snapshot is everything a picker has to know of its cluster. It does not share memory with later ones.
type Snapshot struct {
	// Endpoints are one for each target port of each ready pod of the pool, by pod and port. IDs are the driver's business.
	Endpoints []picker.Endpoint
	// Objectives maps the accepted objectives to their priorities.
	Objectives map[string]int
	// Rewrites are in the order in which they are to be tried.
	Rewrites []Rewrite
	// Synced: the pool exists. Without it there are no endpoints, objectives or rewrites.
	Synced bool
}

// Rewrite is one rule for model names.
type Rewrite struct {
	Object  string // name of the InferenceModelRewrite
	Model   string // the incoming name; "" for any
	Targets []Target
}

// Target is a model to use instead.
type Target struct {
	Model  string
	Weight int // 0: none given
}

// Rewrite is the rule for an incoming model name: an exact one beats a generic one, the oldest object wins among equals.
func (s Snapshot) Rewrite(model string) (Rewrite, bool) {
	for _, r := range s.Rewrites {
		if r.Model == model || r.Model == "" {
			return r, true
		}
	}
	return Rewrite{}, false
}

// Target chooses by weight, for u uniform in [0,1). If any target has a weight those without get nothing; if none has, all are equal.
func (r Rewrite) Target(u float64) string {
	weight := func(t Target) int { return t.Weight }
	if !slices.ContainsFunc(r.Targets, func(t Target) bool { return t.Weight > 0 }) {
		weight = func(Target) int { return 1 }
	}
	total := 0
	for _, t := range r.Targets {
		total += weight(t)
	}
	at := int(u * float64(total))
	for _, t := range r.Targets {
		if at -= weight(t); at < 0 {
			return t.Model
		}
	}
	return "" // no targets
}

// build is what the objects come to.
func build(cfg Config, pools []named[pool], pods []named[pod], objectives []named[objective], rewrites []named[rewrite]) Snapshot {
	s := Snapshot{Objectives: map[string]int{}}
	// The server has selected by name; one that ignores selectors must not do harm.
	at := slices.IndexFunc(pools, func(p named[pool]) bool { return p.name == cfg.PoolName })
	if at < 0 {
		return s
	}
	s.Synced = true
	own := ref{cfg.PoolGroup, "InferencePool", cfg.PoolName}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, endpoints(p, pools[at].value)...)
	}
	for _, o := range objectives {
		if o.value.pool == own {
			s.Objectives[o.name] = o.value.priority
		}
	}
	s.Rewrites = ordered(rewrites, own)
	return s
}

// endpoints are the pod's, one for each target port that is active, by the port's place in the pool.
func endpoints(p named[pod], of pool) []picker.Endpoint {
	if !p.value.ready {
		return nil
	}
	for k, v := range of.selector {
		if have, ok := p.value.labels[k]; !ok || have != v {
			return nil
		}
	}
	var out []picker.Endpoint
	for i, port := range of.ports {
		if p.value.active != nil && !p.value.active[port] {
			continue
		}
		out = append(out, picker.Endpoint{
			Name:    p.name + "-rank-" + strconv.Itoa(i),
			Address: net.JoinHostPort(p.value.ip, strconv.Itoa(port)),
			Role:    epp.RoleOf(p.value.labels[epp.LabelRole]),
			Labels:  labelText(p.value.labels),
		})
	}
	return out
}

// labelText is the canonical form of labels, "k=v,k=v" by key. Neither sign can be part of a label.
func labelText(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, k+"="+labels[k])
	}
	return strings.Join(pairs, ",")
}

// ordered lists the rules that belong to the pool: exact ones first, then by the age and name of their object and their place in it.
func ordered(rewrites []named[rewrite], own ref) []Rewrite {
	rewrites = slices.DeleteFunc(slices.Clone(rewrites), func(r named[rewrite]) bool { return r.value.pool != own })
	slices.SortStableFunc(rewrites, func(a, b named[rewrite]) int { return a.value.created.Compare(b.value.created) })
	var exact, generic []Rewrite
	for _, r := range rewrites {
		for _, rule := range r.value.rules {
			if rule.Model == "" {
				generic = append(generic, rule)
			} else {
				exact = append(exact, rule)
			}
		}
	}
	return append(exact, generic...)
}
