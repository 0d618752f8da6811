package selfcheck

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/asyncproc"
)

// retryMutants are faults of retries and deadlines.
var retryMutants = []Mutant{
	{Name: "backoff-ignored", Fault: "a retry is due at once", Class: "ARETRY", Meant: []string{"AP-RETRY-04"}, Processor: retries(func(now, _ time.Duration) time.Duration { return now })},
	{Name: "backoff-constant", Fault: "every retry waits two seconds", Class: "ARETRY", Meant: []string{"AP-RETRY-04"},
		Processor: retries(func(now, _ time.Duration) time.Duration { return now + 2*time.Second })},
	{Name: "backoff-lockstep", Fault: "retries of one second wait for the same second", Class: "ARETRY", Meant: []string{"AP-RETRY-05"},
		Processor: retries(func(_, due time.Duration) time.Duration { return due.Truncate(4*time.Second) + 4*time.Second })},
	{Name: "retry-after-ignored", Fault: "Retry-After is not heeded", Class: "ARETRY", Meant: []string{"AP-RETRY-06"}, Processor: answers(func(a *async.Answer) { a.RetryAfter = "" })},
	{Name: "server-errors-final", Fault: "5xx ends a request", Class: "ARETRY", Meant: []string{"AP-RETRY-01"}, Processor: answers(status(func(n int) bool { return n >= 500 }, 400))},
	{Name: "sheds-final", Fault: "429 ends a request", Class: "ARETRY", Meant: []string{"AP-RETRY-02"}, Processor: answers(status(func(n int) bool { return n == 429 }, 400))},
	{Name: "client-errors-retried", Fault: "4xx is tried again", Class: "ARETRY", Meant: []string{"AP-RETRY-03"},
		Processor: answers(status(func(n int) bool { return n >= 400 && n < 500 && n != 429 }, 503))},
	{Name: "deadline-an-hour-later", Fault: "deadlines are taken for an hour later", Class: "ARETRY", Meant: []string{"AP-DL-02", "AP-DL-03", "AP-DL-04", "AP-RETRY-07"},
		Processor: pulls(func(m *async.Message) {
			if m.Envelope.Request.Deadline > 0 && m.Envelope.Request.Deadline < math.MaxInt32 {
				m.Envelope.Request.Deadline += 3600
			}
		})},
	{Name: "missed-deadline-unsaid", Fault: "a result of a missed deadline says neither status nor error", Class: "ARETRY", Meant: []string{"AP-RETRY-07", "AP-DL-02", "AP-DL-03"},
		Processor: decides(func(_ time.Duration, o *async.Out) bool {
			if o.Kind == async.Finish && o.Result.ErrorCode == async.CodeDeadlineExceeded {
				o.Result.ErrorCode, o.Result.ErrorMessage = "", ""
			}
			return true
		})},
	{Name: "retry-forgets-path", Fault: "a retry has lost its headers and its path", Class: "AROUTE", Meant: []string{"AP-RETRY-08", "AP-WIRE-06"}, Processor: forgetful()},
	{Name: "request-timeout-ignored", Fault: "attempts have no bound", Class: "ARETRY", Meant: []string{"AP-CLI-09"}, Processor: flags(func(f *asyncconfig.Flags) { f.RequestTimeout = 0 })},
}

// retries changes when retries are due.
func retries(due func(now, due time.Duration) time.Duration) Tampering {
	return decides(func(now time.Duration, o *async.Out) bool {
		if o.Kind == async.Retry {
			o.Due = due(now, o.Due)
		}
		return true
	})
}

func status(which func(int) bool, to int) func(*async.Answer) {
	return func(a *async.Answer) {
		if which(a.Status) {
			a.Status = to
		}
	}
}

// forgetful drops headers and path of what was tried before.
func forgetful() Tampering {
	return func(o *asyncproc.Options) {
		again := map[async.MessageID]bool{}
		base := ""
		if len(o.Config.Queues) > 0 {
			base = o.Config.Queues[0].BaseURL
		}
		o.Around = func(inner asyncproc.Step) asyncproc.Step {
			return func(now time.Duration, ev async.Event, outs []async.Out) []async.Out {
				for _, m := range ev.Messages {
					again[m.ID] = m.Envelope.Internal.RetryCount > 0
				}
				start := len(outs)
				outs = inner(now, ev, outs)
				for i := start; i < len(outs); i++ {
					if x := &outs[i]; x.Kind == async.Send && again[x.ID] {
						x.Request.Headers = nil
						if base != "" {
							x.Request.URL = base + "/v1/completions"
						}
					}
				}
				return outs
			}
		}
	}
}

// gatingMutants are faults of gates and quotas.
var gatingMutants = []Mutant{
	{Name: "gates-open", Fault: "gates are read and ignored", Class: "AGATE", Meant: []string{"AP-GATE-05", "AP-POOL-08", "AP-CFG-12", "AP-GATE-08", "AP-RETRY-12", "AP-MET-17", "AP-MET-18"},
		Processor: replaced(func(*async.Gate) *async.Gate { return nil })},
	{Name: "saturation-fails-closed", Fault: "the saturation gate closes without a source", Class: "AGATE", Meant: []string{"AP-GATE-14"}, Processor: kind(async.PrometheusSaturation, func(g *async.Gate) { g.Fallback = 1 })},
	{Name: "budget-fails-open", Fault: "the budget gate opens without a source", Class: "AGATE", Meant: []string{"AP-GATE-22"}, Processor: kind(async.PrometheusBudget, func(g *async.Gate) { g.Fallback = 1 })},
	{Name: "query-fails-open", Fault: "the query gate opens without a source", Class: "AGATE", Meant: []string{"AP-GATE-28"}, Processor: kind(async.PrometheusQuery, func(g *async.Gate) { g.Fallback = 1 })},
	{Name: "scrape-fails-open", Fault: "the scrape gate opens without a page", Class: "AGATE", Meant: []string{"AP-GATE-31"}, Processor: kind(async.EndpointScrape, func(g *async.Gate) { g.Fallback = 1 })},
	{Name: "threshold-late", Fault: "the saturation gate closes above its threshold only", Class: "AGATE", Meant: []string{"AP-GATE-11"},
		Processor: kind(async.PrometheusSaturation, func(g *async.Gate) { g.Threshold += 0.05 })},
	{Name: "baseline-ignored", Fault: "the baseline is not taken off", Class: "AGATE", Meant: []string{"AP-GATE-20", "AP-GATE-29"}, Processor: gates(func(g *async.Gate) { g.Baseline = 0 })},
	{Name: "cascade-last", Fault: "the budget gate asks the last source only", Class: "AGATE", Meant: []string{"AP-GATE-16", "AP-GATE-17"},
		Processor: kind(async.PrometheusBudget, func(g *async.Gate) { g.Sources = g.Sources[len(g.Sources)-1:] })},
	{Name: "per-pod-count-ignored", Fault: "a count is taken for a saturation", Class: "AGATE", Meant: []string{"AP-GATE-30"}, Processor: kind(async.EndpointScrape, func(g *async.Gate) { g.MaxCountPerPod = 0 })},
	{Name: "local-limit-one-more", Fault: "one more than the limit is in flight", Class: "AGATE", Meant: []string{"AP-GATE-33", "AP-POOL-06", "AP-POOL-09"},
		Processor: kind(async.LocalMaxConcurrency, func(g *async.Gate) { g.Limit++ })},
	{Name: "slot-freed-twice", Fault: "a request that ends makes room for two", Class: "AGATE", Meant: []string{"AP-GATE-33", "AP-POOL-06", "AP-POOL-09"}, Processor: func(o *asyncproc.Options) {
		var limits []*async.Gate
		gates(func(g *async.Gate) {
			if g.Kind == async.LocalMaxConcurrency {
				limits = append(limits, g)
			}
		})(o)
		hears(func(ev *async.Event) bool {
			if ev.Kind == async.Response {
				for _, g := range limits {
					g.Limit++
				}
				limits = nil
			}
			return true
		})(o)
	}},
	{Name: "composite-first", Fault: "a composite asks its first gate only", Class: "AGATE", Meant: []string{"AP-GATE-35", "AP-GATE-37"}, Processor: kind(async.Composite, func(g *async.Gate) { g.Inner = g.Inner[:1] })},
	{Name: "wait-refuses", Fault: "wait-on-refuse refuses", Class: "AGATE", Meant: []string{"AP-POOL-07", "AP-GATE-38"}, Processor: replaced(func(g *async.Gate) *async.Gate {
		if g.Kind == async.WaitOnRefuse {
			return g.Inner[0]
		}
		return g
	})},
	{Name: "admission-ignored", Fault: "tier admission is only its inner gate", Class: "AGATE", Meant: []string{"AP-TIER-07", "AP-TIER-08"}, Processor: replaced(func(g *async.Gate) *async.Gate {
		if g.Kind == async.TierPriorityAdmission {
			return g.Inner[0]
		}
		return g
	})},
	{Name: "blocking-classifies", Fault: "what is over a quota is let through and tagged", Class: "AGATE", Meant: []string{"AP-QUOTA-01", "AP-QUOTA-03", "AP-QUOTA-06"}, Processor: quota(func(q *async.Quota) { q.Classify = true })},
	{Name: "quota-fixed-window", Fault: "windows of a rate limit follow one another, and the end of one and the beginning of the next each take the whole limit", Class: "AGATE", Meant: []string{"AP-QUOTA-01"}, Processor: func() Tampering {
		begun := time.Duration(-1)
		return decides(func(now time.Duration, o *async.Out) bool {
			if o.Kind == async.Acquire && !o.Quota.Concurrency && o.Quota.Window > 0 {
				if begun < 0 {
					begun = now
				}
				q := *o.Quota
				q.Window = max((now-begun)%q.Window, time.Millisecond)
				o.Quota = &q
			}
			return true
		})
	}()},
	{Name: "missed-deadline-stops-queue", Fault: "after a request that missed its deadline nothing more is taken", Class: "AGATE", Meant: []string{"AP-GATE-40"}, Processor: func(o *asyncproc.Options) {
		missed := false
		decides(func(_ time.Duration, o *async.Out) bool {
			missed = missed || o.Kind == async.Finish && o.Result.ErrorCode == async.CodeDeadlineExceeded
			return o.Kind != async.Pull || !missed
		})(o)
	}},
	{Name: "one-batch-ahead", Fault: "what is refused at the head of a queue hides what is behind a batch of it", Class: "AROUTE", Meant: []string{"AP-QUOTA-11"},
		Processor: decides(func(_ time.Duration, o *async.Out) bool {
			if o.Kind == async.Pull {
				o.Offset = 0
			}
			return true
		})},
	{Name: "second-queue-starves", Fault: "the second queue of a pool is never served", Class: "AROUTE", Meant: []string{"AP-POOL-03"},
		Processor: decides(func(_ time.Duration, o *async.Out) bool { return o.Kind != async.Pull || o.Queue != 1 })},
	{Name: "quota-one-more", Fault: "a quota of n lets n+1 through", Class: "AGATE", Meant: []string{"AP-QUOTA-01", "AP-QUOTA-03"}, Processor: quota(func(q *async.Quota) { q.Limit++ })},
	{Name: "quota-shared", Fault: "all tenants have one quota", Class: "AGATE", Meant: []string{"AP-QUOTA-02"}, Processor: func(o *asyncproc.Options) {
		pulls(func(m *async.Message) {
			for k := range m.Envelope.Request.Metadata {
				m.Envelope.Request.Metadata[k] = "everybody"
			}
		})(o)
	}},
	{Name: "quota-leak", Fault: "slots are never given back", Class: "AGATE", Meant: []string{"AP-QUOTA-04", "AP-GATE-40", "AP-GATE-36"}, Processor: decides(func(_ time.Duration, o *async.Out) bool { return o.Kind != async.Free })},
	{Name: "rollback-leak", Fault: "a composite keeps the slots of a message that it refuses", Class: "AGATE", Meant: []string{"AP-GATE-36"}, Processor: around(nil, func(_ time.Duration, outs []async.Out) []async.Out {
		refused := map[async.MessageID]bool{}
		for _, o := range outs {
			if o.Kind == async.Deny {
				refused[o.ID] = true
			}
		}
		n := keep(0, outs, func(_ time.Duration, o *async.Out) bool {
			return o.Kind != async.Free || !refused[o.ID] && len(refused) == 0
		})
		return outs[:n]
	})},
	{Name: "retry-keeps-slot", Fault: "while a message waits for its retry its queue is not served", Class: "AGATE", Meant: []string{"AP-GATE-40"}, Processor: func() Tampering {
		waits := false
		return decides(func(_ time.Duration, o *async.Out) bool {
			waits = waits || o.Kind == async.Retry
			return !waits || o.Kind != async.Pull
		})
	}()},
	{Name: "never-reopens", Fault: "a gate that has closed stays closed", Class: "AGATE", Meant: []string{"AP-GATE-41", "AP-GATE-05"}, Processor: func() Tampering {
		least := map[async.SourceID]float64{}
		return hears(func(ev *async.Event) bool {
			if ev.Kind == async.Reading && ev.Status == async.Sample {
				if v, ok := least[ev.Source]; ok && v < ev.Value {
					ev.Value = v
				}
				least[ev.Source] = ev.Value
			}
			return true
		})
	}()},
	{Name: "head-of-line", Fault: "one tenant's refused message holds up the queue", Class: "AROUTE", Meant: []string{"AP-QUOTA-11"},
		Processor: around(nil, func(_ time.Duration, outs []async.Out) []async.Out {
			for i := range outs {
				if outs[i].Kind == async.Pull {
					outs[i].Offset, outs[i].Count = 0, 1
				}
			}
			return outs
		})},
	{Name: "cache-ignored", Fault: "every poll asks Prometheus", Class: "AGATE", Meant: []string{"AP-CLI-08"}, Processor: func(o *asyncproc.Options) {
		for i := range o.Config.Sources {
			o.Config.Sources[i].TTL = 0
		}
	}},
	{Name: "cache-forever", Fault: "an answer of Prometheus is used for good", Class: "AGATE", Meant: []string{"AP-GATE-41", "AP-CLI-08"}, Processor: func(o *asyncproc.Options) {
		for i := range o.Config.Sources {
			o.Config.Sources[i].TTL = time.Hour
		}
	}},
}

func kind(k async.GateKind, change func(*async.Gate)) Tampering {
	return gates(func(g *async.Gate) {
		if g.Kind == k {
			change(g)
		}
	})
}

func quota(change func(*async.Quota)) Tampering {
	return gates(func(g *async.Gate) {
		if g.Quota != nil {
			change(g.Quota)
		}
	})
}

// queueMutants are faults of queues, pools, lanes and the merge of queues.
var queueMutants = []Mutant{
	{Name: "batch-doubled", Fault: "a poll takes twice the batch", Class: "AROUTE", Meant: []string{"AP-CFG-06", "AP-GATE-01", "AP-GATE-10"}, Processor: queues(func(q *asyncconfig.Queue) { q.Batch *= 2 })},
	{Name: "batch-halved", Fault: "a poll takes half the batch", Class: "AROUTE", Meant: []string{"AP-CFG-06", "AP-GATE-01"}, Processor: queues(func(q *asyncconfig.Queue) { q.Batch = max(1, q.Batch/2) })},
	{Name: "poll-slow", Fault: "polls come half as often", Class: "AROUTE", Meant: []string{"AP-CFG-06"}, Processor: queues(func(q *asyncconfig.Queue) { q.Interval *= 2 })},
	{Name: "one-worker-more", Fault: "a pool has one worker more", Class: "AROUTE", Meant: []string{"AP-POOL-01", "AP-POOL-03", "AP-CLI-01", "AP-CFG-10"}, Processor: pools(func(p *async.PoolConfig) { p.Workers++ })},
	{Name: "pools-merged", Fault: "all queues share the first pool", Class: "AROUTE", Meant: []string{"AP-POOL-04", "AP-TRN-13", "AP-CFG-10"}, Processor: func(o *asyncproc.Options) {
		queues(func(q *asyncconfig.Queue) { q.Pool = o.Config.Pools[0].Name })(o)
	}},
	{Name: "latest-deadline-first", Fault: "the head of the queue is passed over", Class: "AROUTE", Meant: []string{"AP-TRN-03", "AP-TRN-04"}, Processor: passesOver()},
	{Name: "lane-inversion", Fault: "batch goes before interactive", Class: "AROUTE", Meant: []string{"AP-TIER-01", "AP-TIER-02", "AP-MERGE-08"}, Processor: tiers(map[string]string{"interactive": "batch", "batch": "interactive"})},
	{Name: "unknown-tier-first", Fault: "a missing or unknown tier counts as interactive", Class: "AROUTE", Meant: []string{"AP-TIER-03"},
		Processor: tiers(map[string]string{"": "interactive", "gold": "interactive"})},
	{Name: "lanes-ignored", Fault: "tier-priority is random", Class: "AROUTE", Meant: []string{"AP-TIER-01"}, Processor: merges(func(c *async.MergeConfig) { c.Kind = async.RandomRobin })},
	{Name: "no-stamp", Fault: "the tenant is not stamped", Class: "AROUTE", Meant: []string{"AP-MERGE-03"}, Processor: merges(func(c *async.MergeConfig) { c.FairnessHeader = "" })},
	{Name: "no-lane-header", Fault: "the lane is not stamped", Class: "AROUTE", Meant: []string{"AP-MERGE-08"}, Processor: merges(func(c *async.MergeConfig) { c.PriorityHeader = "" })},
	{Name: "lane-objectives-ignored", Fault: "lanes have no objectives", Class: "AROUTE", Meant: []string{"AP-MERGE-09"}, Processor: merges(func(c *async.MergeConfig) { c.LaneObjectives = [async.Lanes]string{} })},
	{Name: "objective-ignored", Fault: "the objective of a queue is not sent", Class: "AROUTE", Meant: []string{"AP-CFG-09"}, Processor: queues(func(q *asyncconfig.Queue) { q.Objective = "" })},
	{Name: "path-ignored", Fault: "the path of a queue is not used", Class: "AROUTE", Meant: []string{"AP-CFG-08"}, Processor: queues(func(q *asyncconfig.Queue) { q.Path = "/v1/completions" })},
	{Name: "labels-ignored", Fault: "the labels of a queue are not used", Class: "AROUTE", Meant: []string{"AP-CFG-11"}, Processor: queues(func(q *asyncconfig.Queue) { q.Labels = nil })},
	{Name: "result-list-ignored", Fault: "results of a queue with a list of its own go to the general one", Class: "AROUTE", Meant: []string{"AP-CFG-14"}, Processor: queues(func(q *asyncconfig.Queue) { q.ResultQueue = "" })},
	{Name: "ttl-ignored-async", Fault: "result lists never expire", Class: "AROUTE", Meant: []string{"AP-CFG-15"}, Processor: queues(func(q *asyncconfig.Queue) { q.ResultTTL = 0 })},
	{Name: "removed-still-served", Fault: "a queue that was removed is still served", Class: "AROUTE", Meant: []string{"AP-RELOAD-02", "AP-RELOAD-03"}, Processor: hears(func(ev *async.Event) bool { return ev.Kind != async.RemoveQueue })},
	{Name: "reload-ignored", Fault: "the queues are read once", Class: "AROUTE", Meant: []string{"AP-RELOAD-01", "AP-RELOAD-02", "AP-RELOAD-03"}, Processor: func(o *asyncproc.Options) { o.Loader = nil }},
}

// passesOver lets every other pull begin with the second message.
func passesOver() Tampering {
	n := 0
	return decides(func(_ time.Duration, o *async.Out) bool {
		if o.Kind == async.Pull {
			n++
			if n%2 == 1 {
				o.Offset, o.Count = 1, 1
			}
		}
		return true
	})
}

// tiers renames the tiers of queues and messages.
func tiers(to map[string]string) Tampering {
	rename := func(labels map[string]string) map[string]string {
		out := map[string]string{}
		for k, v := range labels {
			out[k] = v
		}
		if t, ok := to[out["tier"]]; ok {
			out["tier"] = t
		}
		return out
	}
	return func(o *asyncproc.Options) {
		queues(func(q *asyncconfig.Queue) { q.Labels = rename(q.Labels) })(o)
	}
}

// requestMutants are faults of what goes over the wire to the gateway, and of results.
var requestMutants = []Mutant{
	{Name: "caller-stamp-wins", Fault: "a caller's own fairness header is kept", Class: "AROUTE", Meant: []string{"AP-MERGE-04"}, Processor: callerWins()},
	{Name: "payload-rewritten", Fault: "the payload is decoded and written anew", Class: "AFIDELITY", Meant: []string{"AP-WIRE-04"}, Except: []string{"llm-d-async-0.9"}, Processor: through(rewritten)},
	{Name: "payload-truncated", Fault: "the payload loses its last byte but one", Class: "AFIDELITY", Meant: []string{"AP-WIRE-04", "AP-XFORM-01"}, Processor: through(func(r *http.Request, body []byte) []byte {
		if n := len(body); n > 2 {
			return append(bytes.Clone(body[:n-2]), body[n-1])
		}
		return body
	})},
	{Name: "method-put", Fault: "requests are PUT", Class: "AFIDELITY", Meant: []string{"AP-WIRE-04"}, Processor: through(func(r *http.Request, body []byte) []byte { r.Method = http.MethodPut; return body })},
	{Name: "no-content-type", Fault: "requests say no content type", Class: "AFIDELITY", Meant: []string{"AP-WIRE-04", "AP-XFORM-03"}, Processor: sends(without("content-type"))},
	{Name: "content-type-json", Fault: "a form goes out as JSON", Class: "AFIDELITY", Meant: []string{"AP-XFORM-03"}, Processor: through(func(r *http.Request, body []byte) []byte {
		r.Header.Set("Content-Type", "application/json")
		return body
	})},
	{Name: "transforms-ignored", Fault: "bodies are never transformed", Class: "AFIDELITY", Meant: []string{"AP-XFORM-02", "AP-XFORM-03", "AP-RES-08"}, Processor: func(o *asyncproc.Options) { o.Config.Transforms = nil }},
	{Name: "metadata-leaks", Fault: "metadata goes out as headers", Class: "AFIDELITY", Meant: []string{"AP-WIRE-05"}, Processor: pulls(func(m *async.Message) {
		for k, v := range m.Envelope.Request.Metadata {
			if m.Envelope.Request.Headers == nil {
				m.Envelope.Request.Headers = map[string]string{}
			}
			m.Envelope.Request.Headers[k] = v
		}
	})},
	{Name: "headers-dropped", Fault: "the headers of a message are not sent", Class: "AFIDELITY", Meant: []string{"AP-WIRE-06"}, Processor: pulls(func(m *async.Message) { m.Envelope.Request.Headers = nil })},
	{Name: "endpoint-ignored", Fault: "the endpoint of a message is not used", Class: "AROUTE", Meant: []string{"AP-WIRE-07"}, Processor: pulls(func(m *async.Message) { m.Envelope.Request.Endpoint = "" })},
	{Name: "answer-truncated", Fault: "results lose the end of the answer", Class: "AFIDELITY", Meant: []string{"AP-RES-02", "AP-RES-03"}, Processor: finishes(func(r *async.Result) {
		if r.StatusCode != 0 && len(r.Payload) > 2 {
			r.Payload = r.Payload[:len(r.Payload)/2]
		}
	})},
	{Name: "error-with-status", Fault: "results without an answer have a status", Class: "AFIDELITY", Meant: []string{"AP-RES-04"}, Processor: finishes(func(r *async.Result) {
		if r.ErrorCode != "" {
			r.StatusCode = 504
		}
	})},
	{Name: "error-code-invented", Fault: "error codes are of nobody's list", Class: "AFIDELITY", Meant: []string{"AP-RES-04", "AP-DL-02"}, Processor: finishes(func(r *async.Result) {
		if r.ErrorCode != "" {
			r.ErrorCode = "EXPIRED"
		}
	})},
	{Name: "errors-as-success", Fault: "final errors are reported as 200", Class: "AFIDELITY", Meant: []string{"AP-RES-03", "AP-RETRY-03"}, Processor: finishes(func(r *async.Result) {
		if r.StatusCode >= 400 {
			r.StatusCode = 200
		}
	})},
	{Name: "withdrawal-ignored", Fault: "a withdrawn request is sent all the same", Class: "ALOSS", Meant: []string{"AP-RES-05"}, Processor: hears(func(ev *async.Event) bool {
		for i := range ev.Messages {
			ev.Messages[i].Cancelled = false
		}
		return ev.Kind != async.Cancel
	})},
	{Name: "tls-unverified", Fault: "certificates are not looked at", Class: "AWIRE", Meant: []string{"AP-TLS-01", "AP-TLS-03"}, Processor: func(o *asyncproc.Options) { o.Config.Flags.TLSInsecureSkipVerify = true }},
	{Name: "no-trace", Fault: "spans are not exported", Class: "AWIRE", Meant: []string{"AP-OTEL-01", "AP-OTEL-02"}, Processor: func(o *asyncproc.Options) { o.Tracing = nil }},
	{Name: "redis-spans-always", Fault: "every Redis command has a span", Class: "AWIRE", Meant: []string{"AP-OTEL-07"}, Processor: func(o *asyncproc.Options) { o.Config.Redis.Tracing = true }},
}

func without(name string) func(*async.Outgoing) {
	return func(o *async.Outgoing) {
		kept := o.Headers[:0]
		for _, h := range o.Headers {
			if h.Name != name {
				kept = append(kept, h)
			}
		}
		o.Headers = kept
	}
}

// callerWins puts a caller's own fairness header back over the stamp.
func callerWins() Tampering {
	own := map[async.MessageID]string{}
	return around(func(_ time.Duration, ev *async.Event) bool {
		for _, m := range ev.Messages {
			for k, v := range m.Envelope.Request.Headers {
				if strings.EqualFold(k, "x-llm-d-inference-fairness-id") {
					own[m.ID] = v
				}
			}
		}
		return true
	}, func(_ time.Duration, outs []async.Out) []async.Out {
		for i := range outs {
			v, ok := own[outs[i].ID]
			if outs[i].Kind != async.Send || !ok {
				continue
			}
			headers := append([]async.Header(nil), outs[i].Request.Headers...)
			for k := range headers {
				if headers[k].Name == "x-llm-d-inference-fairness-id" {
					headers[k].Value = v
				}
			}
			outs[i].Request.Headers = headers
		}
		return outs
	})
}

// through changes requests on their way out.
func through(change func(r *http.Request, body []byte) []byte) Tampering {
	return func(o *asyncproc.Options) {
		o.HTTP = &http.Client{Transport: tampered{change}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
}

type tampered struct {
	change func(r *http.Request, body []byte) []byte
}

// RoundTrip implements http.RoundTripper.
func (t tampered) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	c := r.Clone(r.Context())
	body = t.change(c, body)
	c.Body, c.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return http.DefaultTransport.RoundTrip(c)
}

func rewritten(_ *http.Request, body []byte) []byte {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return body
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return body
	}
	return raw
}

// pageMutants are faults of what is shown.
var pageMutants = []Mutant{
	{Name: "prefix-single", Fault: "metric names have the prefix once", Class: "AMET", Meant: []string{"AP-MET-01"}, Processor: shows(renamed("llm_d_async_async_", "llm_d_async_"))},
	{Name: "no-queue-id", Fault: "series have no queue_id", Class: "AMET", Meant: []string{"AP-MET-01", "AP-CFG-13"}, Processor: shows(unlabelled("queue_id"))},
	{Name: "attempts-counted", Fault: "every attempt counts as a request", Class: "AMET", Meant: []string{"AP-MET-02"}, Processor: shows(added("llm_d_async_async_request_total", "llm_d_async_async_request_retries_total"))},
	{Name: "retries-uncounted", Fault: "retries are not counted", Class: "AMET", Meant: []string{"AP-MET-08"}, Processor: shows(scaled("llm_d_async_async_request_retries_total", 0))},
	{Name: "successes-uncounted", Fault: "successes are not counted", Class: "AMET", Meant: []string{"AP-MET-03", "AP-MET-24"}, Processor: shows(scaled("llm_d_async_async_successful_requests_total", 0))},
	{Name: "failures-doubled", Fault: "failures are counted twice", Class: "AMET", Meant: []string{"AP-MET-05", "AP-MET-24"}, Processor: shows(scaled("llm_d_async_async_failed_requests_total", 2))},
	{Name: "sheds-uncounted", Fault: "sheds are not counted", Class: "AMET", Meant: []string{"AP-MET-06", "AP-RETRY-02"}, Processor: shows(scaled("llm_d_async_async_shedded_requests_total", 0))},
	{Name: "expired-uncounted", Fault: "missed deadlines are not counted", Class: "AMET", Meant: []string{"AP-MET-07"}, Processor: shows(scaled("llm_d_async_async_exceeded_deadline_requests_total", 0))},
	{Name: "tokens-doubled", Fault: "tokens are counted twice", Class: "AMET", Meant: []string{"AP-MET-04"}, Processor: shows(scaled("llm_d_async_async_tokens_total", 2))},
	{Name: "latency-in-seconds", Fault: "latency is in seconds", Class: "AMET", Meant: []string{"AP-MET-10"}, Processor: shows(scaled("llm_d_async_async_inference_latency_time_millis", 0.001))},
	{Name: "residence-in-seconds", Fault: "residence is in seconds", Class: "AMET", Meant: []string{"AP-MET-11"}, Processor: shows(scaled("llm_d_async_async_queue_residence_time_millis", 0.001))},
	{Name: "inflight-doubled", Fault: "requests in flight are counted twice", Class: "AMET", Meant: []string{"AP-MET-13"}, Processor: shows(scaled("llm_d_async_async_inflight_requests", 2))},
	{Name: "backlog-zero", Fault: "the backlog is always 0", Class: "AMET", Meant: []string{"AP-MET-14"}, Processor: shows(scaled("llm_d_async_async_broker_backlog", 0))},
	{Name: "workers-doubled", Fault: "a pool shows twice its workers", Class: "AMET", Meant: []string{"AP-MET-15", "AP-CLI-04"}, Processor: shows(scaled("llm_d_async_async_pool_worker_limit", 2))},
	{Name: "budget-one", Fault: "the budget shown is halved", Class: "AMET", Meant: []string{"AP-MET-16"}, Processor: shows(scaled("llm_d_async_async_dispatch_budget", 0.5))},
	{Name: "decisions-late", Fault: "reasons appear with their first occurrence", Class: "AMET", Meant: []string{"AP-MET-17"}, Processor: shows(nonZero("llm_d_async_async_gate_decisions_total"))},
	{Name: "closed-is-a-retry", Fault: "a poll of a closed gate counts as a retry", Class: "AMET", Meant: []string{"AP-RETRY-12"}, Processor: shows(copied("llm_d_async_async_request_retries_total", "llm_d_async_async_gate_decisions_total", "reason"))},
	{Name: "closed-per-message", Fault: "a closed gate is counted once in a while, not at every poll", Class: "AMET", Meant: []string{"AP-MET-18"}, Processor: shows(scaled("llm_d_async_async_gate_decisions_total", 0.5))},
	{Name: "gate-value-inverted", Fault: "the gate shows the saturation, not what is left of it", Class: "AMET", Meant: []string{"AP-MET-19"}, Processor: shows(scaled("llm_d_async_async_gate_metric_value", 9./11))},
	{Name: "source-always-there", Fault: "a source is always shown as available", Class: "AMET", Meant: []string{"AP-MET-20"}, Processor: shows(ones("llm_d_async_async_gate_metric_source_available"))},
	{Name: "inference-pool-lost", Fault: "gauges of gates do not name the inference pool", Class: "AMET", Meant: []string{"AP-MET-21"}, Processor: shows(unlabelled("inference_pool"))},
	{Name: "latency-hidden", Fault: "the time since publication is not shown", Class: "AMET", Meant: []string{"AP-MET-09"}, Processor: shows(dropped("llm_d_async_async_message_latency_time_millis"))},
	{Name: "decisions-hidden", Fault: "what gates prevented is not shown", Class: "AMET", Meant: []string{"AP-MET-23", "AP-MET-17"}, Processor: shows(dropped("llm_d_async_async_gate_decisions_total"))},
	{Name: "metrics-open", Fault: "metrics need no authentication", Class: "AMET", Meant: []string{"AP-HEALTH-02"}, Processor: flags(func(f *asyncconfig.Flags) { f.MetricsEndpointAuth = false })},
}
