package checks

import (
	"fmt"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
)

// asyncPrinted: each process of Texts came up and printed its text, in whatever letter case, or ended with an error.
func asyncPrinted(a Async, r *evidence.Run) finding {
	if len(a.Texts) == 0 {
		return notEngaged("nothing is looked for")
	}
	by := map[string]evidence.Process{}
	for _, p := range r.Processes {
		by[p.Case] = p
	}
	for _, name := range sortedKeys(a.Texts) {
		p, ok := by[name]
		text := a.Texts[name]
		switch {
		case !ok:
			return notEngaged("case " + name + " was not tried")
		case text == "":
			return notEngaged("any text would do")
		case !p.Started && p.ExitCode == 0:
			return fail(name+": exit 0", fmt.Sprintf("%q ended with status 0, expected that it runs or says why it cannot: %s", name, p.Text), name)
		case !p.Started && p.ExitCode < 0:
			return fail(name+": still runs", fmt.Sprintf("%q neither became ready nor ended within ten seconds: %s", name, p.Text), name)
		case p.Started && !strings.Contains(strings.ToLower(p.Text), strings.ToLower(text)):
			return fail(name+": silent", fmt.Sprintf("%q printed nothing about %q: %s", name, text, p.Text), name)
		}
	}
	return pass(fmt.Sprintf("%d texts", len(a.Texts)), fmt.Sprintf("%d starts", len(by)))
}

// atStart is how a step begins to word the state of a processor that did not come up as it should, endedAtStart that of one that ended.
const (
	atStart      = `the processor is "`
	endedAtStart = atStart + `ended"`
)

// asyncStays: the processors of the starts Names did not end at once, ready or not.
func asyncStays(a Async, r *evidence.Run) finding {
	if len(a.Names) == 0 {
		return notEngaged("no start is named")
	}
	for _, name := range a.Names {
		m, ok := r.StepByMark(name)
		switch {
		case !ok || m.Op != "start":
			return notEngaged("start " + name + " was not reached")
		case !m.OK && strings.HasPrefix(m.Detail, endedAtStart):
			return fail(name+": ended", fmt.Sprintf("the process of %s ended: %s", name, m.Detail), name)
		case !m.OK && !strings.HasPrefix(m.Detail, atStart):
			return notEngaged("nothing is known of the process of " + name)
		}
	}
	return pass(fmt.Sprintf("%d run", len(a.Names)), fmt.Sprintf("%d starts", len(a.Names)))
}

// asyncUnready: the last answers of the questions Names were no success; no answer is none either.
func asyncUnready(a Async, r *evidence.Run) finding {
	if len(a.Names) == 0 {
		return notEngaged("no question is named")
	}
	for _, name := range a.Names {
		m, ok := r.StepByMark(name)
		switch {
		case !ok || m.Op != "get" || m.Detail == "":
			return notEngaged("question " + name + " was not asked")
		case strings.HasPrefix(m.Detail, "2"): // all statuses from 200 to 299 are success
			return fail(name+": "+m.Detail[:min(3, len(m.Detail))], fmt.Sprintf("%s: %s, expected anything but success", name, firstLine(m.Detail)), name)
		}
	}
	return pass(fmt.Sprintf("%d unready", len(a.Names)), fmt.Sprintf("%d questions", len(a.Names)))
}

// asyncRefusedOrServed: the processor of start Names ended with an error, or every one of the ids was served with Status.
func asyncRefusedOrServed(a Async, r *evidence.Run) finding {
	if len(a.Names) != 1 {
		return notEngaged("no start is named")
	}
	m, ok := r.StepByMark(a.Names[0])
	switch {
	case !ok:
		return notEngaged("step " + a.Names[0] + " was not reached")
	case !m.OK && strings.HasPrefix(m.Detail, endedAtStart) && strings.Contains(m.Detail, "exit status 0"):
		return fail("exit 0", "it ended with status 0, expected that it runs or refuses: "+m.Detail, a.Names[0])
	case !m.OK && strings.HasPrefix(m.Detail, endedAtStart):
		return pass("refused", "the process ended at its start")
	case !m.OK:
		return fail("neither", "it neither came up nor ended: "+m.Detail, a.Names[0])
	}
	return asyncResults(a, r)
}

// asyncGrowth: between the looks From and To each of Names grew by at least Low and at most High a second.
func asyncGrowth(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	switch {
	case why != "":
		return notEngaged(why)
	case a.From == "" || a.To == "" || len(a.Names) == 0 || a.High <= a.Low:
		return notEngaged("any growth would do")
	}
	figure := ""
	for _, name := range a.Names {
		before, after := looked(r, a.From, name), looked(r, a.To, name)
		if before == nil || after == nil || before.Type == "" || after.Type == "" {
			return notEngaged(fmt.Sprintf("nobody could look at %s at %s and at %s", name, a.From, a.To))
		}
		rate := float64(after.Size-before.Size) * 1e9 / float64(to-from)
		if rate < a.Low || rate > a.High {
			return fail(fmt.Sprintf("%s %.3g/s", name, rate), fmt.Sprintf("%s grew by %.4g a second, expected %g to %g", name, rate, a.Low, a.High))
		}
		figure = fmt.Sprintf("%s %.3g/s", name, rate)
	}
	return pass(figure, fmt.Sprintf("watched for %s", ms(to-from)))
}
