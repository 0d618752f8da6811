package checks

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// asyncPrefix begins the name of every metric of a processor (AP-MET-01).
const asyncPrefix = "llm_d_async_"

// asyncSeries lists the samples of a name with labels, at a mark.
func asyncSeries(r *evidence.Run, mark, who, name string, labels map[string]string) []evidence.Sample {
	if who == "" {
		who = "p"
	}
	var out []evidence.Sample
	for _, s := range r.Samples {
		ok := s.Mark == mark && s.Source == who && s.Name == asyncPrefix+name
		for k, v := range labels {
			own, has := s.Labels[k]
			ok = ok && has && own == v
		}
		if ok {
			out = append(out, s)
		}
	}
	return out
}

func sum(samples []evidence.Sample) float64 {
	t := 0.0
	for _, s := range samples {
		t += s.Value
	}
	return t
}

// asyncValues: the metrics show what Values says. Series that match together count as their sum.
func asyncValues(a Async, r *evidence.Run) finding {
	if len(a.Values) == 0 {
		return notEngaged("nothing is looked for")
	}
	figure := ""
	for _, w := range a.Values {
		if !slices.ContainsFunc(r.Samples, func(s evidence.Sample) bool { return s.Mark == w.Mark }) {
			return notEngaged("no metrics were read at " + w.Mark)
		}
		found := asyncSeries(r, w.Mark, w.Who, w.Name, w.Labels)
		label := fmt.Sprintf("%s%s at %s", w.Name, wordLabels(w.Labels), w.Mark)
		if w.Absent {
			if len(found) > 0 {
				return fail(label, fmt.Sprintf("%s is there with %g, expected no such series", label, sum(found)))
			}
			figure = "absent: " + w.Name
			continue
		}
		v := sum(found)
		if w.Since != "" {
			v -= sum(asyncSeries(r, w.Since, w.Who, w.Name, w.Labels))
		}
		if len(found) == 0 && (w.Min > 0 || w.Max < 0 || w.Since == "") {
			return fail("no "+w.Name, fmt.Sprintf("no series %s", label))
		}
		if v < w.Min || v > w.Max {
			return fail(fmt.Sprintf("%s = %g", w.Name, v), fmt.Sprintf("%s is %g, expected %g to %g", label, v, w.Min, w.Max))
		}
		figure = fmt.Sprintf("%s = %g", w.Name, v)
	}
	return pass(figure, fmt.Sprintf("%d values", len(a.Values)))
}

func wordLabels(m map[string]string) string {
	var out []string
	for _, k := range sortedKeys(m) {
		out = append(out, fmt.Sprintf("%s=%q", k, m[k]))
	}
	if len(out) == 0 {
		return ""
	}
	return "{" + strings.Join(out, ",") + "}"
}

// asyncLabels: at mark To each family of Names is there, and every series of it has exactly the labels Labels (le of buckets aside).
func asyncLabels(a Async, r *evidence.Run) finding {
	seen := 0
	for _, name := range a.Names {
		n := 0
		for _, s := range r.Samples {
			base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(s.Name, "_bucket"), "_sum"), "_count")
			if s.Mark != a.To || s.Name != asyncPrefix+name && base != asyncPrefix+name {
				continue
			}
			n++
			var own []string
			for _, k := range sortedKeys(s.Labels) {
				if k != "le" {
					own = append(own, k)
				}
			}
			if want := slices.Sorted(slices.Values(a.Labels)); !slices.Equal(own, want) {
				return fail(name+" has other labels", fmt.Sprintf("%s has the labels %v, expected %v", name, own, want))
			}
		}
		if n == 0 {
			if len(r.Samples) == 0 {
				return notEngaged("no metrics were read")
			}
			return fail("no "+name, "the metrics page has no "+asyncPrefix+name)
		}
		seen += n
	}
	if seen == 0 {
		return notEngaged("nothing is looked for")
	}
	return pass(fmt.Sprintf("%d families", len(a.Names)), fmt.Sprintf("%d series", seen))
}

// asyncKeys: the broker has what Keys says.
func asyncKeys(a Async, r *evidence.Run) finding {
	if len(a.Keys) == 0 {
		return notEngaged("nothing is looked for")
	}
	figure := ""
	for _, w := range a.Keys {
		n, looked := int64(0), false
		for _, o := range r.Observations {
			if o.Key == nil || o.Mark != w.Mark || !slices.Contains(w.Keys, o.Key.Name) {
				continue
			}
			looked = true
			n += o.Key.Size
			if why := w.wrong(o.Key); why != "" {
				return fail(o.Key.Name+": "+why, fmt.Sprintf("key %s at %s: %s", o.Key.Name, w.Mark, why))
			}
		}
		label := strings.Join(w.Keys, " + ")
		if !looked {
			return notEngaged(fmt.Sprintf("nobody looked at %s at %s", label, w.Mark))
		}
		if n < w.Min || w.Max >= 0 && n > w.Max {
			return fail(fmt.Sprintf("%s: %d", label, n), fmt.Sprintf("%s have %d at %s, expected %s", label, n, w.Mark, bounded(int(w.Min), int(w.Max))))
		}
		figure = fmt.Sprintf("%s: %d", label, n)
	}
	return pass(figure, fmt.Sprintf("%d looks", len(a.Keys)))
}

func (w KeyWant) wrong(k *evidence.BrokerKey) string {
	ttl := time.Duration(k.TTL)
	switch {
	case k.Type == "none":
	case w.NoTTL && k.TTL != evidence.Never:
		return fmt.Sprintf("it expires in %s, expected never", ttl)
	case w.TTLMax > 0 && (k.TTL == evidence.Never || ttl > w.TTLMax || ttl < w.TTLMin):
		if k.TTL == evidence.Never {
			return fmt.Sprintf("it never expires, expected in %s to %s", w.TTLMin, w.TTLMax)
		}
		return fmt.Sprintf("it expires in %s, expected in %s to %s", ttl, w.TTLMin, w.TTLMax)
	case w.Value != "" && k.Value != w.Value:
		return fmt.Sprintf("it is %q, expected %q", k.Value, w.Value)
	}
	return ""
}

// asyncAccounts: at mark To first attempts are successes, failures, exceeded deadlines, drops, and cancellations (AP-MET-24): what was
// counted as a request and is over has an outcome that is counted. Min messages of each outcome took part; those that never reached a
// worker are in Low.
func asyncAccounts(a Async, r *evidence.Run) finding {
	of := func(name string, labels map[string]string) float64 {
		return sum(asyncSeries(r, a.To, "", name, labels))
	}
	requests := of("async_request_total", nil)
	if requests == 0 {
		return notEngaged("no request was counted")
	}
	outcomes := of("async_successful_requests_total", nil) + of("async_failed_requests_total", nil) + of("async_exceeded_deadline_requests_total", nil) +
		of("async_cancelled_requests_total", nil) + of("async_gate_decisions_total", map[string]string{"reason": "dropped"})
	inside := of("async_inflight_requests", nil) + of("async_queue_depth", nil)
	missing := requests + a.Low - outcomes - inside
	if math.Abs(missing) > 0.5 {
		return fail(fmt.Sprintf("%g unaccounted", missing), fmt.Sprintf("%g requests were counted and %g more ended before, %g outcomes, %g still inside", requests, a.Low, outcomes, inside))
	}
	return pass(fmt.Sprintf("%g requests, %g outcomes", requests, outcomes), fmt.Sprintf("%g requests", requests))
}
