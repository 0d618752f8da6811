package checks

import (
	"cmp"
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
	who = cmp.Or(who, "p")
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

// sum adds values up. A page says MaxFloat64 where it has no number that can be written down, and no number compares with anything.
func sum(samples []evidence.Sample) float64 {
	t := 0.0
	for _, s := range samples {
		if math.Abs(s.Value) == math.MaxFloat64 {
			return math.NaN()
		}
		t += s.Value
	}
	return t
}

// scraped tells whether a processor's page was read at a mark.
func scraped(r *evidence.Run, mark, who string) bool {
	return slices.ContainsFunc(r.Samples, func(s evidence.Sample) bool { return s.Mark == mark && s.Source == cmp.Or(who, "p") })
}

// asyncValues: the metrics show what Values says. Series that match together count as their sum.
func asyncValues(a Async, r *evidence.Run) finding {
	if len(a.Values) == 0 {
		return notEngaged("nothing is looked for")
	}
	figure := ""
	for _, w := range a.Values {
		for _, m := range []string{w.Mark, cmp.Or(w.Since, w.Mark)} {
			if !scraped(r, m, w.Who) {
				return notEngaged("no metrics were read at " + m)
			}
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
		// Negated, because a value that is no number is never inside.
		if !(v >= w.Min && v <= w.Max) {
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
	if !scraped(r, a.To, "") {
		return notEngaged("no metrics were read at " + a.To)
	}
	for _, name := range a.Names {
		n := 0
		for _, s := range r.Samples {
			base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(s.Name, "_bucket"), "_sum"), "_count")
			if s.Mark != a.To || s.Source != "p" || s.Name != asyncPrefix+name && base != asyncPrefix+name {
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
			return fail("no "+name, "the metrics page has no "+asyncPrefix+name)
		}
		seen += n
	}
	if seen == 0 {
		return notEngaged("nothing is looked for")
	}
	return pass(fmt.Sprintf("%d families", len(a.Names)), fmt.Sprintf("%d series", seen))
}

// asyncKeys: the broker has what Keys says. Each of the keys was looked at; the last look at a mark counts. A key that is not there counts
// as the value 0, and never for when it expires.
func asyncKeys(a Async, r *evidence.Run) finding {
	if len(a.Keys) == 0 {
		return notEngaged("nothing is looked for")
	}
	figure := ""
	for _, w := range a.Keys {
		n, there := int64(0), false
		label := strings.Join(w.Keys, " + ")
		for _, name := range w.Keys {
			k := looked(r, w.Mark, name)
			if k == nil || k.Type == "" {
				return notEngaged(fmt.Sprintf("nobody could look at %s at %s", name, w.Mark))
			}
			n += k.Size
			there = there || k.Type != "none"
			if why := w.wrong(k); why != "" {
				return fail(name+": "+why, fmt.Sprintf("key %s at %s: %s", name, w.Mark, why))
			}
		}
		if n < w.Min || w.Max >= 0 && n > w.Max {
			return fail(fmt.Sprintf("%s: %d", label, n), fmt.Sprintf("%s have %d at %s, expected %s", label, n, w.Mark, bounded(int(w.Min), int(w.Max))))
		}
		if len(w.Keys) == 0 || !there && (w.NoTTL || w.expires()) {
			return notEngaged(fmt.Sprintf("nothing of %q was there at %s", label, w.Mark))
		}
		figure = fmt.Sprintf("%s: %d", label, n)
	}
	return pass(figure, fmt.Sprintf("%d looks", len(a.Keys)))
}

// looked is the last look at a key at a mark.
func looked(r *evidence.Run, mark, name string) (out *evidence.BrokerKey) {
	for _, o := range r.Observations {
		if o.Key != nil && o.Mark == mark && o.Key.Name == name {
			out = o.Key
		}
	}
	return out
}

// expires tells whether it matters when a key expires; without TTLMax it may do so at any time from TTLMin on.
func (w KeyWant) expires() bool { return w.TTLMin > 0 || w.TTLMax > 0 }

func (w KeyWant) wrong(k *evidence.BrokerKey) string {
	ttl := time.Duration(k.TTL)
	switch {
	case k.Type == "none" && w.Value != "" && w.Value != "0":
		return fmt.Sprintf("it is not there, expected %q", w.Value)
	case k.Type == "none":
	case w.NoTTL && k.TTL != evidence.Never:
		return fmt.Sprintf("it expires in %s, expected never", ttl)
	case w.expires() && (k.TTL == evidence.Never || w.TTLMax > 0 && ttl > w.TTLMax || ttl < w.TTLMin):
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
// counted as a request and is over has an outcome that is counted. Min messages of each outcome took part, one in any case, as their results
// say; those that never reached a worker are in Low.
func asyncAccounts(a Async, r *evidence.Run) finding {
	of := func(name string, labels map[string]string) float64 {
		return sum(asyncSeries(r, a.To, "", name, labels))
	}
	requests := of("async_request_total", nil)
	if requests == 0 {
		return notEngaged("no request was counted")
	}
	ended := map[string]int{}
	for _, o := range r.Observations {
		if o.Result != nil {
			ended[outcome(o.Result)]++
		}
	}
	for _, kind := range outcomes {
		if need := max(a.Min, 1); ended[kind] < need {
			return notEngaged(fmt.Sprintf("%d of %d results that are needed are %s", ended[kind], need, kind))
		}
	}
	over := of("async_successful_requests_total", nil) + of("async_failed_requests_total", nil) + of("async_exceeded_deadline_requests_total", nil) +
		of("async_cancelled_requests_total", nil) + of("async_gate_decisions_total", map[string]string{"reason": "dropped"})
	inside := of("async_inflight_requests", nil) + of("async_queue_depth", nil)
	missing := requests + a.Low - over - inside
	if !(math.Abs(missing) <= 0.5) {
		return fail(fmt.Sprintf("%g unaccounted", missing), fmt.Sprintf("%g requests were counted and %g more ended before, %g outcomes, %g still inside", requests, a.Low, over, inside))
	}
	return pass(fmt.Sprintf("%g requests, %g outcomes", requests, over), fmt.Sprintf("%g requests", requests))
}

// outcomes are the ways to end that AP-MET-24 adds up.
var outcomes = []string{"successes", "failures", "exceeded deadlines", "drops", "cancellations"}

func outcome(v *evidence.FinalResult) string {
	switch {
	case v.Code == "DEADLINE_EXCEEDED":
		return outcomes[2]
	case v.Code == "CANCELLED":
		return outcomes[4]
	case v.Code == "GATE_DROPPED" || shape("dropped", v) == "":
		return outcomes[3]
	case v.Status/100 == 2:
		return outcomes[0]
	}
	return outcomes[1]
}

// asyncResidence: at mark To the time from the pull to a worker, of Min messages that one worker handled one after the other, is what the
// upstream saw: the first arrived at once, each later one after those before it, up to the share Low. Messages that waited in the broker
// did not wait in the process: at most the last (Min - 1) / 2 of them may have.
func asyncResidence(a Async, r *evidence.Run) finding {
	found := a.attempts(r, 0, math.MaxInt64)
	switch {
	case !scraped(r, a.To, ""):
		return notEngaged("no metrics were read at " + a.To)
	case len(found) != a.Min || a.Min < 3:
		return notEngaged(fmt.Sprintf("%d arrivals, %d are needed", len(found), a.Min))
	}
	for k := range found[1:] {
		// A page counts milliseconds: what waited for hardly any says nothing.
		if x := found[k]; x.End == evidence.Never || x.End > found[k+1].at || found[k+1].at-x.at < int64(100*time.Millisecond) {
			return notEngaged(found[k+1].ID + " did not wait for " + x.ID)
		}
	}
	n := sum(asyncSeries(r, a.To, "", "async_queue_residence_time_millis_count", nil))
	got := sum(asyncSeries(r, a.To, "", "async_queue_residence_time_millis_sum", nil))
	if n == 0 {
		return fail("no residence", "no series async_queue_residence_time_millis")
	}
	most := 0.0
	for _, x := range found {
		most += float64(x.at-found[0].at) / 1e6
	}
	least := 0.0 // where half of them were pulled late
	for _, x := range found[:(len(found)+1)/2] {
		least += float64(x.at-found[0].at) / 1e6
	}
	// Negated, because what is no number is never inside.
	if !(n == float64(a.Min) && got <= most*(1+a.Low) && got >= least*(1-a.Low)) {
		return fail(fmt.Sprintf("%.0f ms of %g", got, n), fmt.Sprintf("%g messages resided %.0f ms together, expected %d and %.0f to %.0f ms", n, got, a.Min, least, most))
	}
	return pass(fmt.Sprintf("%.0f ms of %g", got, n), fmt.Sprintf("%d arrivals", len(found)))
}

// asyncDepth: what is not in flight at mark To and not in the broker at mark From waits in the process, and the gauge says so: Min messages
// together.
func asyncDepth(a Async, r *evidence.Run) finding {
	q := map[string]string{"queue_name": "q"}
	depth := asyncSeries(r, a.To, "", "async_queue_depth", q)
	k := looked(r, a.From, "q")
	switch {
	case !scraped(r, a.To, "") || k == nil || k.Type == "":
		return notEngaged("the page, or the broker, could not be looked at")
	case a.Min <= 0:
		return notEngaged("nothing waits")
	case len(depth) == 0:
		return fail("no depth", "no series async_queue_depth of queue q")
	}
	if got := sum(depth) + float64(k.Size); got != float64(a.Min) {
		return fail(fmt.Sprintf("depth %g", sum(depth)), fmt.Sprintf("async_queue_depth is %g and the broker has %d, expected %d together", sum(depth), k.Size, a.Min))
	}
	return pass(fmt.Sprintf("depth %g", sum(depth)), fmt.Sprintf("%d in the broker", k.Size))
}

// asyncExits: the processes that ended at the marks of Names ended with status 0.
func asyncExits(a Async, r *evidence.Run) finding {
	if len(a.Names) == 0 {
		return notEngaged("nothing is looked for")
	}
	for _, name := range a.Names {
		i := slices.IndexFunc(r.Processes, func(p evidence.Process) bool { return p.Case == name })
		switch {
		case i < 0:
			return notEngaged("nothing is known of " + name)
		case r.Processes[i].ExitCode < 0:
			return fail("still runs", fmt.Sprintf("%s: the process had not ended, or not by itself: %s", name, r.Processes[i].Text), name)
		case r.Processes[i].ExitCode != 0:
			return fail(fmt.Sprintf("exit %d", r.Processes[i].ExitCode), fmt.Sprintf("%s: exit %d: %s", name, r.Processes[i].ExitCode, r.Processes[i].Text), name)
		}
	}
	return pass("exit 0", fmt.Sprintf("%d ended", len(a.Names)))
}

// asyncRounds: in at least Min of the rounds whose marks begin with Names the process had work in flight when it was hit, and in all of them
// it ended.
func asyncRounds(a Async, r *evidence.Run) finding {
	if len(a.Names) != 1 || a.Names[0] == "" || a.Min <= 0 {
		return notEngaged("nothing is looked for")
	}
	all, hit := 0, 0
	for _, s := range r.Steps {
		if strings.HasPrefix(s.Mark, a.Names[0]) {
			all++
			if s.OK {
				hit++
			} else if strings.Contains(s.Detail, "did not end") {
				return fail(s.Mark+": it did not end", s.Detail, s.Mark)
			}
		}
	}
	if hit < a.Min {
		return notEngaged(fmt.Sprintf("%d of %d rounds met work in flight, %d are needed", hit, all, a.Min))
	}
	return pass(fmt.Sprintf("%d of %d rounds", hit, all), fmt.Sprintf("%d rounds", all))
}
