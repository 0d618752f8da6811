package workload

import (
	"errors"
	"fmt"
	"math"

	"github.com/llm-weir/weir/loadgen/arrival"
)

// problem is one semantic error at a place of the spec ("tenants[2].arrival.rate").
type problem struct{ path, text string }

// Validate reports everything wrong with a spec that was built in code; Parse has already applied it.
func (s Spec) Validate() error {
	var errs []error
	for _, p := range s.problems() {
		errs = append(errs, fmt.Errorf("workload %q: %s: %s", s.Name, p.path, p.text))
	}
	return errors.Join(errs...)
}

// problems is the one list of semantic rules, used for files and for specs built in code alike.
func (s Spec) problems() []problem {
	var c checker
	c.require(s.Name != "", "name", "no name: give the workload one")
	c.require(s.Duration > 0 && s.Duration <= MaxDuration, "duration", "%v is not above 0s and at most %v: set how long requests arrive, e.g. 30s",
		s.Duration, MaxDuration)
	c.require(len(s.Tenants) > 0, "tenants", "no tenants: list at least one")
	c.require(len(s.Tenants) <= MaxTenants, "tenants", "%d tenants: use at most %d", len(s.Tenants), MaxTenants)
	first := map[string]int{}
	for i, t := range s.Tenants {
		at := fmt.Sprintf("tenants[%d]", i)
		if j, dup := first[t.Name]; dup && t.Name != "" {
			c.add(at+".name", "tenant name %q is already used by tenant %d of the list: rename one of them", t.Name, j+1)
		} else {
			first[t.Name] = i
		}
		c.tenant(at, s, t)
	}
	return c.found
}

type checker struct{ found []problem }

func (c *checker) add(path, format string, args ...any) {
	c.found = append(c.found, problem{path, fmt.Sprintf(format, args...)})
}

func (c *checker) require(ok bool, path, format string, args ...any) {
	if !ok {
		c.add(path, format, args...)
	}
}

func (c *checker) tenant(at string, s Spec, t Tenant) {
	c.require(plainName(t.Name), at+".name", "tenant name %q: use 1 to 63 letters, digits, _ and - (it becomes part of request ids)", t.Name)
	c.require(headerValue(t.FairnessID), at+".fairnessID", "%q cannot be sent in a header: use printable ASCII without outer blanks", t.FairnessID)
	c.require(headerValue(t.Objective), at+".objective", "%q cannot be sent in a header: use printable ASCII without outer blanks", t.Objective)
	c.arrival(at+".arrival", t.Arrival)
	c.lengths(at+".promptTokens", t.Prompt)
	c.lengths(at+".outputTokens", t.Output)
	c.require(t.MaxTokens >= 0 && t.MaxTokens <= MaxTokens, at+".maxTokens", "%d is not between 1 and %d: change it, or leave it out for the longest output",
		t.MaxTokens, MaxTokens)
	c.require(t.Path == "" || t.Path == PathCompletions || t.Path == PathChat, at+".path", "unknown path %q: use completions or chat", t.Path)
	c.window(at, s, t)
	c.require(t.CancelAfter >= 0 && t.CancelAfter <= MaxDuration, at+".cancelAfter", "%v is not between 0s and %v", t.CancelAfter, MaxDuration)
	c.require(t.CancelFraction >= 0 && t.CancelFraction <= 1, at+".cancelFraction", "%v is not between 0 and 1", t.CancelFraction)
	c.require(t.CancelAfter > 0 || t.CancelFraction == 0, at+".cancelFraction", "cancelFraction without cancelAfter: say after how long the client disconnects")
	c.require(t.CancelAfter <= 0 || t.CancelFraction != 0, at+".cancelFraction", "cancelAfter with a cancelFraction of 0 has no effect: raise one or leave both out")
}

func (c *checker) window(at string, s Spec, t Tenant) {
	if s.Duration <= 0 {
		return // reported once, at duration
	}
	c.require(t.Start >= 0 && t.Start < s.Duration, at+".start", "%v is not between 0s and the duration %v: nothing would be sent", t.Start, s.Duration)
	c.require(t.Stop >= 0 && t.Stop <= s.Duration, at+".stop", "%v is not between 0s and the duration %v: shorten it or raise duration", t.Stop, s.Duration)
	c.require(t.Stop <= 0 || t.Stop > t.Start || t.Start >= s.Duration, at+".stop", "stop %v is not after start %v: nothing would be sent", t.Stop, t.Start)
}

func (c *checker) arrival(at string, a Arrival) {
	switch a.Process {
	case "":
		c.add(at+".process", "no arrival process: use constant, poisson, gamma or closed")
		return
	case Closed:
		c.require(a.Workers > 0 && a.Workers <= MaxWorkers, at+".workers", "%d workers: a closed loop needs 1 to %d", a.Workers, MaxWorkers)
		c.require(a.Think >= 0 && a.Think <= MaxDuration, at+".think", "%v is not between 0s and %v", a.Think, MaxDuration)
		c.require(a.Rate == 0, at+".rate", "a closed loop has no rate, its workers set the pace: remove it or use poisson")
		c.require(a.CV == 0, at+".cv", "a closed loop has no cv: remove it or use gamma")
		return
	case arrival.Constant, arrival.Poisson:
		c.require(a.CV == 0, at+".cv", "%s has no cv: remove it or use gamma", a.Process)
	case arrival.Gamma:
		c.require(a.CV > 0 && a.CV <= arrival.MaxCV, at+".cv", "cv %v is not above 0 and at most %v: 1 is as bursty as poisson, more is burstier",
			a.CV, arrival.MaxCV)
	default:
		c.add(at+".process", "unknown arrival process %q: use constant, poisson, gamma or closed", a.Process)
		return
	}
	c.require(a.Rate > 0 && a.Rate <= arrival.MaxRate, at+".rate", "rate %v is not above 0 and at most %v: set the requests per second", a.Rate, float64(arrival.MaxRate))
	c.require(a.Workers == 0, at+".workers", "%s has no workers: remove them or use closed", a.Process)
	c.require(a.Think == 0, at+".think", "%s has no think time: remove it or use closed", a.Process)
}

func (c *checker) lengths(at string, l Lengths) {
	switch l.Distribution {
	case "":
		c.add(at, "no length: use {fixed: N}, {uniform: {min: A, max: B}} or {lognormal: {mean: M, cv: C, min: A, max: B}}")
		return
	case Fixed:
		c.require(l.Value >= 1 && l.Value <= MaxTokens, at+".fixed", "%d tokens is not between 1 and %d", l.Value, MaxTokens)
		return
	case Uniform, Lognormal:
	default:
		c.add(at, "unknown distribution %q: use fixed, uniform or lognormal", l.Distribution)
		return
	}
	in := at + "." + string(l.Distribution)
	c.require(l.Min >= 1 && l.Min <= MaxTokens, in+".min", "min %d is not between 1 and %d", l.Min, MaxTokens)
	c.require(l.Max >= l.Min && l.Max <= MaxTokens, in+".max", "max %d is not between min %d and %d", l.Max, l.Min, MaxTokens)
	if l.Distribution == Lognormal {
		c.require(l.Mean >= 1 && l.Mean <= MaxTokens, in+".mean", "mean %v is not between 1 and %d", l.Mean, MaxTokens)
		c.require(l.CV > 0 && l.CV <= MaxLengthCV, in+".cv", "cv %v is not above 0 and at most %v: 1 spreads as widely as the mean", l.CV, float64(MaxLengthCV))
		c.require(math.IsNaN(l.Mean) || l.Mean < 1 || l.Max < l.Min || (l.Mean >= float64(l.Min) && l.Mean <= float64(l.Max)), in+".mean",
			"mean %v is outside [min %d, max %d]: every draw would be moved to a bound", l.Mean, l.Min, l.Max)
	}
}

func plainName(s string) bool {
	for _, b := range []byte(s) {
		if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '-') {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 63
}

// headerValue refuses what net/http would refuse or trim on the way, so that the record says what the router got.
func headerValue(s string) bool {
	for i, b := range []byte(s) {
		if b < ' ' || b > '~' || b == ' ' && (i == 0 || i == len(s)-1) {
			return false
		}
	}
	return len(s) <= 1024
}
