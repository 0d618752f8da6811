package checks

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

// consolidation (BEN-16): a limit of Count bounds the queue of the batch band Low. What it refuses is refused with Status and Reason, and
// sent again by its owner (ids "x", "x~2", "x~3"...) until it completes; the interactive band High completes as if alone: at most 0.25 s and
// a service quantum of waiting at the 95th percentile. Engaged if Needed were refused and four fifths of the limit were reached.
func consolidation(s Spec, r *evidence.Run) finding {
	b := s.Bench
	if b == nil || b.High == "" || b.Low == "" || s.Count < 1 || s.Status == 0 {
		return notEngaged("no bands, no limit, or no status to look for")
	}
	last := map[string]evidence.Client{} // by job: its latest attempt
	refused, served, first := 0, 0, 0
	var high []evidence.Client
	for _, c := range r.Clients {
		if c.Sent == evidence.Never {
			continue
		}
		if c.Objective == b.High {
			high = append(high, c)
			continue
		}
		if c.Outcome == evidence.Refused {
			refused++
			if c.Status != s.Status || s.Reason != "" && c.Reason != s.Reason {
				return fail(answer(c), fmt.Sprintf("a band at its limit refuses with %d %s, %s got %s", s.Status, s.Reason, c.ID, answer(c)), c.ID)
			}
		} else if _, ok := arrival(r, c.ID); ok && c.Outcome == evidence.Completed {
			served++
		}
		job, attempt, _ := strings.Cut(c.ID, "~")
		if attempt == "" && c.Outcome != evidence.Refused {
			first++
		}
		if l, ok := last[job]; !ok || c.Sent > l.Sent {
			last[job] = c
		}
	}
	w := window{r, span{0, math.MaxInt64}}
	if why := w.steady(); why != "" {
		return notEngaged(why)
	}
	most := longestQueue(r, b.Low, max(queueAfter, int64(2e9*w.lag())))
	if short(refused, s.Needed) || most < s.Count*4/5 {
		return notEngaged(fmt.Sprintf("%d were refused and at most %d waited, %d refusals and %d waiting are needed", refused, most, s.Needed, s.Count*4/5))
	}
	figure := fmt.Sprintf("%d jobs: %d accepted at once, %d refusals, %d finally completed; at most %d waited", len(last), first, refused, served, most)
	if most > s.Count {
		return fail(figure, fmt.Sprintf("the band may hold %d, and %d waited", s.Count, most))
	}
	for _, job := range sortedKeys(last) {
		if c := last[job]; c.Outcome != evidence.Completed {
			return fail(figure, fmt.Sprintf("%s was retried and never completed: its last attempt %s ended as %s", job, c.ID, answer(c)), c.ID)
		}
	}
	return untouched(w, high, figure)
}

// untouched judges the wait of the interactive band.
func untouched(w window, high []evidence.Client, figure string) finding {
	sort.SliceStable(high, func(i, j int) bool { return high[i].Sent < high[j].Sent })
	for _, c := range high {
		if c.Outcome != evidence.Completed {
			return fail(answer(c), fmt.Sprintf("%s is interactive and must not feel the limit of batch; it ended as %s", c.ID, answer(c)), c.ID)
		}
	}
	bound := promptly + w.service() + w.lag()
	p95 := quantile(queued(w.r, high), 0.95)
	figure += fmt.Sprintf("; interactive p95 wait %v s (≤ %.3f)", p95, bound)
	kind, why := p95.within(math.Inf(-1), bound)
	if kind == verdict.Fail {
		why = fmt.Sprintf("interactive traffic may wait %.3f s beside batch", bound)
	}
	return finding{kind: kind, figure: figure, why: why, engaged: fmt.Sprintf("%d interactive", len(high))}
}

// longestQueue is the largest number of requests of a band that were surely in the queue at one time: sent for longer than passing takes,
// and that long before the end of their wait.
func longestQueue(r *evidence.Run, band string, passing int64) int {
	type change struct {
		at int64
		by int
	}
	var changes []change
	for _, c := range r.Clients {
		until, ok := decided(r, c)
		if c.Objective == band && c.Sent != evidence.Never && ok && until > c.Sent+2*passing {
			changes = append(changes, change{c.Sent + passing, 1}, change{until - passing, -1})
		}
	}
	sort.Slice(changes, func(i, j int) bool {
		return changes[i].at < changes[j].at || changes[i].at == changes[j].at && changes[i].by < changes[j].by
	})
	now, most := 0, 0
	for _, c := range changes {
		now += c.by
		most = max(most, now)
	}
	return most
}
