package checks_test

import (
	"math"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

func (h *hist) exchange(id, header, metadata string, first int) *hist {
	h.r.Exchanges = append(h.r.Exchanges, evidence.Exchange{Scenario: h.r.Scenario, ID: id, HeaderDestination: header, MetadataDestination: metadata, First: at(first)})
	h.r.Sort()
	return h
}

func (h *hist) x(id string, f func(*evidence.Exchange)) *hist {
	for i := range h.r.Exchanges {
		if h.r.Exchanges[i].ID == id {
			f(&h.r.Exchanges[i])
		}
	}
	return h
}

func (h *hist) unexchanged(id string) *hist {
	var kept []evidence.Exchange
	for _, x := range h.r.Exchanges {
		if x.ID != id {
			kept = append(kept, x)
		}
	}
	h.r.Exchanges = kept
	return h
}

// detail gives a step its word, at an instant of its own.
func (h *hist) detail(mark, text string) *hist {
	for i := range h.r.Steps {
		if h.r.Steps[i].Mark == mark {
			h.r.Steps[i].Detail = text
		}
	}
	return h
}

// routed is two requests with one destination each.
func routed() *hist {
	return history().served("r1", 0, 5, 100).served("r2", 10, 15, 100).exchange("r1", "a", "a", 4).exchange("r2", "a", "a", 14)
}

var routedSpec = checks.Spec{IDs: []string{"r1", "r2"}, Needed: 2}

// stopped is a request that was stopped at its model server, and five calm seconds.
func stopped() *hist {
	return history().refused("v", 0, 500, 429, "evicted").backend("v", "a", 1, 499, evidence.Aborted).step("calm", 1000, 6000)
}

var onceSpec = checks.Spec{IDs: []string{"v"}, Mark: "calm", Count: 1, Min: 4 * time.Second}

// quiet is a request that waits for 1200 ms in silence and is dispatched afterwards.
func quiet() *hist {
	return history().served("w1", 0, 1300, 1400).exchange("w1", "a", "a", 1299).step("waiting", 10, 1200)
}

var quietSpec = checks.Spec{IDs: []string{"w1"}, Mark: "waiting", Min: time.Second}

func kept() *hist {
	return history().served("r1", 0, 5, 100).b("r1", func(b *evidence.Backend) { b.RequestID = "mine" })
}

var keptSpec = checks.Spec{RequestIDs: map[string]string{"r1": "mine"}}

// odd is an odd answer and an ordinary request after it.
func odd() *hist {
	return history().served("html", 0, 5, 100).served("next", 110, 115, 120).
		b("html", func(b *evidence.Backend) { b.AnswerSHA256 = "x" }).c("html", func(c *evidence.Client) { c.AnswerSHA256 = "x" })
}

var oddSpec = checks.Spec{IDs: []string{"html"}, Then: []string{"next"}}

func off() *hist {
	return history().served("r1", 0, 5, 100).step("page", 200, 210).sample("page", "other", 1, labels{})
}

var offSpec = checks.Spec{IDs: []string{"r1"}, Names: []string{"q"}, Mark: "page"}

func typed(kind string) func(*evidence.Sample) { return func(sm *evidence.Sample) { sm.Type = kind } }

func shown() *hist {
	return history().served("r1", 0, 5, 100).step("page", 200, 210).sample("page", "h_count", 1, labels{"a": "1", "b": "2"}).s(typed("histogram"))
}

var shownSpec = checks.Spec{IDs: []string{"r1"}, Mark: "page", Families: []checks.Family{{Name: "h", Type: "histogram", Labels: []string{"a", "b"}}}}

func shownWith(f func(*checks.Spec)) checks.Spec { s := shownSpec; f(&s); return s }

// inside is a model server with one request running and one waiting, by its log and by its page.
func inside() *hist {
	return history().served("r1", 0, 5, 1000).served("r2", 10, 15, 1000).step("page", 200, 210).
		sample("page", "running", 1, labels{}).sample("page", "waiting", 1, labels{}).sample("page", "kv", 0.5, labels{}).s(elsewhere)
}

var insideSpec = checks.Spec{IDs: []string{"r1", "r2"}, Mark: "page", Mode: "a", Count: 2, Names: []string{"running", "waiting", "kv"}}

func insideWith(f func(*checks.Spec)) checks.Spec { s := insideSpec; f(&s); return s }

// levels are three levels of saturation with two bands each: both, the upper one, none.
func levels() *hist {
	return history().served("h1", 0, 5, 50).served("l1", 0, 6, 50).
		served("h2", 100, 105, 150).left("l2", 100, 300).
		left("h3", 400, 600).left("l3", 400, 600)
}

var levelsSpec = checks.Spec{Groups: [][]string{{"h1", "l1"}, {"h2", "l2"}, {"h3", "l3"}}, Min: 100 * time.Millisecond, Mode: "some"}

func levelsWith(f func(*checks.Spec)) checks.Spec { s := levelsSpec; f(&s); return s }

// full is a queue of two that refuses while both places are taken, and lets in when one is free again.
func crowded() *hist {
	return history().served("plug", 0, 1, 100).served("a", 10, 101, 200).served("b", 20, 201, 300).
		refused("over", 30, 31, 429, "full").served("later", 150, 301, 400)
}

var fullSpec = checks.Spec{Count: 2, Needed: 1, Status: 429, Reason: "full"}

func fullWith(f func(*checks.Spec)) checks.Spec { s := fullSpec; f(&s); return s }

func healthy() *hist {
	return history().served("r1", 0, 5, 90).step("up", 0, 1).step("down", 100, 101).detail("up", "SERVING").detail("down", "NOT_SERVING")
}

var healthySpec = checks.Spec{IDs: []string{"r1"}, States: map[string]string{"up": "SERVING", "down": "NOT_SERVING"}}

func ended(ms int) *hist {
	return history().served("r1", 0, 5, 90).step("shutdown", 0, 1).step("down", 1, ms)
}

var endedSpec = checks.Spec{IDs: []string{"r1"}, After: "shutdown", Mark: "down", Max: 2 * time.Second}

var outsideTrials = []trial{
	{"destination", "passing", "header, metadata and arrival agree", routedSpec, routed(), pass},
	{"destination", "failing", "the metadata names another", routedSpec, routed().x("r2", func(x *evidence.Exchange) { x.MetadataDestination = "b" }), fail},
	{"destination", "failing", "the header names another", routedSpec, routed().x("r2", func(x *evidence.Exchange) { x.HeaderDestination = "b" }), fail},
	{"destination", "failing", "the metadata names none", routedSpec, routed().x("r2", func(x *evidence.Exchange) { x.MetadataDestination = "" }), fail},
	{"destination", "failing", "it was seen twice", routedSpec, routed().backend("r2", "a", 20, 30, evidence.Finished), fail},
	{"destination", "failing", "it was sent to one and seen by none", routedSpec, routed().unseen("r2"), fail},
	{"destination", "degenerate", "the arrival has no instant", routedSpec, routed().b("r2", arrivesNever), fail},
	{"destination", "degenerate", "one was not dispatched", routedSpec, routed().unseen("r2").x("r2", func(x *evidence.Exchange) { x.HeaderDestination, x.MetadataDestination = "", "" }), inconclusive},
	{"destination", "degenerate", "nothing is known of the exchange", routedSpec, routed().unexchanged("r2"), inconclusive},
	{"destination", "degenerate", "one was not sent", routedSpec, routed().c("r1", sentNever), inconclusive},
	{"destination", "degenerate", "too few", checks.Spec{IDs: []string{"r1", "r2"}, Needed: 3}, routed(), inconclusive},

	{"once", "passing", "it does not come back", onceSpec, stopped(), pass},
	{"once", "failing", "it comes back", onceSpec, stopped().backend("v", "a", 4000, 4100, evidence.Finished), fail},
	{"once", "degenerate", "it comes back at no known instant", onceSpec, stopped().backend("v", "a", 0, 4100, evidence.Finished).b("v", func(b *evidence.Backend) {
		if b.Ending == evidence.Finished {
			b.Arrival = evidence.Never
		}
	}), fail},
	{"once", "degenerate", "it was not stopped", onceSpec, stopped().c("v", func(c *evidence.Client) { c.Outcome = evidence.Completed }), inconclusive},
	{"once", "degenerate", "the model server was not told", onceSpec, stopped().b("v", func(b *evidence.Backend) { b.Ending = evidence.Finished }), inconclusive},
	{"once", "degenerate", "it was never at a model server", onceSpec, stopped().unseen("v"), inconclusive},
	{"once", "degenerate", "it was stopped later", onceSpec, stopped().c("v", func(c *evidence.Client) { c.End = at(2000) }), inconclusive},
	{"once", "degenerate", "nothing was free", onceSpec, stopped().served("w", 0, 1, 9000), inconclusive},
	{"once", "degenerate", "nobody watched for long", onceSpec, stopped().without("calm").step("calm", 1000, 2000), inconclusive},
	{"once", "degenerate", "nobody", checks.Spec{Mark: "calm", Count: 1, Min: 4 * time.Second}, stopped(), inconclusive},

	{"silent", "passing", "the first word comes with the dispatch", quietSpec, quiet(), pass},
	{"silent", "failing", "something is said while it waits", quietSpec, quiet().x("w1", func(x *evidence.Exchange) { x.First = at(50) }), fail},
	{"silent", "degenerate", "nothing is ever said", quietSpec, quiet().x("w1", func(x *evidence.Exchange) { x.First = evidence.Never }), inconclusive},
	{"silent", "degenerate", "nothing is known of the exchange", quietSpec, quiet().unexchanged("w1"), inconclusive},
	{"silent", "degenerate", "it went nowhere afterwards", quietSpec, quiet().unseen("w1"), inconclusive},
	{"silent", "degenerate", "it did not wait", quietSpec, quiet().b("w1", arrivesAt(100)), inconclusive},
	{"silent", "degenerate", "it had not waited long", checks.Spec{IDs: []string{"w1"}, Mark: "waiting", Min: 2 * time.Second}, quiet(), inconclusive},
	{"silent", "degenerate", "nobody watched", quietSpec, quiet().broken("waiting"), inconclusive},
	{"silent", "degenerate", "no request", checks.Spec{Mark: "waiting", Min: time.Second}, quiet(), inconclusive},

	{"request-ids", "passing", "the id arrives", keptSpec, kept(), pass},
	{"request-ids", "failing", "another arrives", keptSpec, kept().b("r1", func(b *evidence.Backend) { b.RequestID = "yours" }), fail},
	{"request-ids", "failing", "none arrives", keptSpec, kept().b("r1", func(b *evidence.Backend) { b.RequestID = "" }), fail},
	{"request-ids", "degenerate", "an empty one was wanted", checks.Spec{RequestIDs: map[string]string{"r1": ""}}, kept().b("r1", func(b *evidence.Backend) { b.RequestID = "" }), fail},
	{"request-ids", "degenerate", "it was not served", keptSpec, kept().unseen("r1"), inconclusive},
	{"request-ids", "degenerate", "it was not sent", keptSpec, kept().unsent("r1"), inconclusive},

	{"answers", "passing", "the bytes arrive, and the next one is served", oddSpec, odd(), pass},
	{"answers", "failing", "other bytes arrive", oddSpec, odd().c("html", func(c *evidence.Client) { c.AnswerSHA256 = "y" }), fail},
	{"answers", "failing", "no bytes arrive", oddSpec, odd().c("html", func(c *evidence.Client) { c.AnswerSHA256 = "" }), fail},
	{"answers", "failing", "the answer breaks off", oddSpec, odd().c("html", func(c *evidence.Client) { c.Outcome = evidence.KilledMidStream }), fail},
	{"answers", "failing", "the next one is not served", oddSpec, odd().unseen("next").c("next", func(c *evidence.Client) { c.Outcome, c.Status = evidence.Refused, 503 }), fail},
	{"answers", "failing", "no model server saw the next one", oddSpec, odd().unseen("next"), fail},
	{"answers", "degenerate", "it ended at no instant", oddSpec, odd().c("html", endsNever), fail},
	{"answers", "degenerate", "the model server gave no such answer", oddSpec, odd().b("html", func(b *evidence.Backend) { b.AnswerSHA256 = "" }), inconclusive},
	{"answers", "degenerate", "the model server did not finish it", oddSpec, odd().b("html", func(b *evidence.Backend) { b.Ending = evidence.Aborted }), inconclusive},
	{"answers", "degenerate", "the next one was sent before", oddSpec, odd().c("next", func(c *evidence.Client) { c.Sent = at(50) }), inconclusive},
	{"answers", "degenerate", "it was not sent", oddSpec, odd().unsent("html"), inconclusive},
	{"answers", "degenerate", "nobody afterwards", checks.Spec{IDs: []string{"html"}}, odd(), inconclusive},

	{"absent", "passing", "others are there", offSpec, off(), pass},
	{"absent", "failing", "it is there", offSpec, off().sample("page", "q", 1, labels{}), fail},
	{"absent", "failing", "it is there and reads 0", offSpec, off().sample("page", "q", 0, labels{}), fail},
	{"absent", "degenerate", "it is there and no number", offSpec, off().sample("page", "q", math.NaN(), labels{}), fail},
	{"absent", "degenerate", "the page shows nothing", offSpec, off().drop(marked("page")), inconclusive},
	{"absent", "degenerate", "the page was not read", offSpec, off().broken("page"), inconclusive},
	{"absent", "degenerate", "no traffic before it", offSpec, off().c("r1", func(c *evidence.Client) { c.End = at(300) }), inconclusive},
	{"absent", "degenerate", "the traffic was not served", offSpec, off().unseen("r1"), inconclusive},
	{"absent", "degenerate", "no name", checks.Spec{IDs: []string{"r1"}, Mark: "page"}, off(), inconclusive},

	{"families", "passing", "type and labels as named", shownSpec, shown(), pass},
	{"families", "passing", "more labels than named", shownWith(func(s *checks.Spec) {
		s.Families = []checks.Family{{Name: "h", Type: "histogram", Labels: []string{"a"}}}
	}), shown(), pass},
	{"families", "failing", "it is missing", shownWith(func(s *checks.Spec) { s.Families = []checks.Family{{Name: "other", Type: "gauge"}} }), shown(), fail},
	{"families", "failing", "another type", shownSpec, shown().s(typed("summary")), fail},
	{"families", "failing", "a label is missing", shownWith(func(s *checks.Spec) {
		s.Families = []checks.Family{{Name: "h", Type: "histogram", Labels: []string{"c"}}}
	}), shown(), fail},
	{"families", "failing", "one of its series lacks a label", shownSpec, shown().sample("page", "h_count", 1, labels{"a": "1"}).s(typed("histogram")), fail},
	{"families", "degenerate", "only a model server shows it", shownSpec, shown().s(elsewhere).sample("page", "else", 1, labels{}), fail},
	{"families", "degenerate", "the type is not known", shownSpec, shown().s(typed("")), fail},
	{"families", "degenerate", "the page shows nothing", shownSpec, shown().drop(marked("page")), inconclusive},
	{"families", "degenerate", "the page was not read", shownSpec, shown().broken("page"), inconclusive},
	{"families", "degenerate", "it had not ended before the page", shownSpec, shown().c("r1", func(c *evidence.Client) { c.End = at(205) }), inconclusive},
	{"families", "degenerate", "nothing was exercised", shownWith(func(s *checks.Spec) { s.IDs = nil }), shown(), inconclusive},
	{"families", "degenerate", "no family", shownWith(func(s *checks.Spec) { s.Families = nil }), shown(), inconclusive},

	{"engine", "passing", "page and log agree", insideSpec, inside(), pass},
	{"engine", "failing", "the page says less", insideSpec, inside().s(reads("waiting", 0)), fail},
	{"engine", "failing", "the page says more", insideSpec, inside().s(reads("running", 2)), fail},
	{"engine", "failing", "a family is missing", insideSpec, inside().drop(named("kv")), fail},
	{"engine", "degenerate", "it reads no number", insideSpec, inside().s(reads("waiting", math.NaN())), fail},
	{"engine", "degenerate", "it is the router's page", insideSpec, inside().s(func(sm *evidence.Sample) { sm.Source = "router" }), fail},
	{"engine", "degenerate", "too few inside", insideWith(func(s *checks.Spec) { s.Count = 3 }), inside(), inconclusive},
	{"engine", "degenerate", "one left while the page was read", insideSpec, inside().b("r2", func(b *evidence.Backend) { b.End = at(205) }), inconclusive},
	{"engine", "degenerate", "the page was not read", insideSpec, inside().broken("page"), inconclusive},
	{"engine", "degenerate", "no names", insideWith(func(s *checks.Spec) { s.Names = nil }), inside(), inconclusive},

	{"prefix", "passing", "both, the upper one, none", levelsSpec, levels(), pass},
	{"prefix", "passing", "without a level in between where none is asked for", checks.Spec{Groups: [][]string{{"h1", "l1"}, {"h3", "l3"}}, Min: 100 * time.Millisecond}, levels(), pass},
	{"prefix", "failing", "the lower one overtakes", levelsSpec, levels().unseen("h1").c("h1", func(c *evidence.Client) { c.Outcome, c.End = evidence.ClientCancelled, at(300) }), fail},
	{"prefix", "degenerate", "an arrival has no instant", levelsSpec, levels().b("h2", arrivesNever), inconclusive},
	{"prefix", "degenerate", "it arrived before it was sent", levelsSpec, levels().c("h2", func(c *evidence.Client) { c.Sent = at(110) }), inconclusive},
	{"prefix", "degenerate", "no level in between", levelsWith(func(s *checks.Spec) { s.Groups = [][]string{{"h1", "l1"}, {"h3", "l3"}} }), levels(), inconclusive},
	{"prefix", "degenerate", "no level that serves nobody", levelsWith(func(s *checks.Spec) { s.Groups = s.Groups[:2] }), levels(), inconclusive},
	{"prefix", "degenerate", "no level that serves all", levelsWith(func(s *checks.Spec) { s.Groups = s.Groups[1:] }), levels(), inconclusive},
	{"prefix", "degenerate", "it did not wait long enough to be shut out", levelsSpec, levels().c("l2", func(c *evidence.Client) { c.End = at(110) }), inconclusive},
	{"prefix", "degenerate", "one band alone", levelsWith(func(s *checks.Spec) { s.Groups = [][]string{{"h1"}, {"h2", "l2"}, {"h3", "l3"}} }), levels(), inconclusive},
	{"prefix", "degenerate", "one was not sent", levelsSpec, levels().c("l3", sentNever), inconclusive},
	{"prefix", "degenerate", "one never ended", levelsSpec, levels().c("l3", endsNever), inconclusive},

	{"at-limit", "passing", "refused while both places are taken", fullSpec, crowded(), pass},
	{"at-limit", "failing", "refused while one is free", fullSpec, crowded().refused("early", 15, 16, 429, "full"), fail},
	{"at-limit", "failing", "refused when both have gone in", fullSpec, crowded().refused("late", 450, 451, 429, "full"), fail},
	{"at-limit", "degenerate", "it was refused at no instant", fullSpec, crowded().c("over", endsNever), inconclusive},
	{"at-limit", "degenerate", "no model server knows when one arrived", fullSpec, crowded().b("later", arrivesNever), inconclusive},
	{"at-limit", "degenerate", "nobody was refused", fullSpec, crowded().unsent("over"), inconclusive},
	{"at-limit", "degenerate", "refused for something else", fullSpec, crowded().c("over", func(c *evidence.Client) { c.Reason = "tired" }), inconclusive},
	{"at-limit", "degenerate", "nobody was let in", fullSpec, history().refused("over", 30, 31, 429, "full").client("w", 0, 40, evidence.Unfinished, 0, "").client("v", 0, 40, evidence.Unfinished, 0, ""), inconclusive},
	{"at-limit", "degenerate", "no limit", fullWith(func(s *checks.Spec) { s.Count = 0 }), crowded(), inconclusive},

	{"state", "passing", "serving, then not", healthySpec, healthy(), pass},
	{"state", "failing", "serving to the end", healthySpec, healthy().detail("down", "SERVING"), fail},
	{"state", "failing", "never serving", healthySpec, healthy().detail("up", "NOT_SERVING"), fail},
	{"state", "degenerate", "it could not be asked", healthySpec, healthy().broken("down"), inconclusive},
	{"state", "degenerate", "it was not asked", healthySpec, healthy().without("down"), inconclusive},
	{"state", "degenerate", "it had no traffic", checks.Spec{States: healthySpec.States}, healthy(), inconclusive},
	{"state", "degenerate", "its traffic arrived nowhere", healthySpec, healthy().unseen("r1"), inconclusive},
	{"state", "degenerate", "it said nothing", healthySpec, healthy().detail("down", ""), inconclusive},
	{"state", "degenerate", "one state alone", checks.Spec{IDs: []string{"r1"}, States: map[string]string{"up": "SERVING"}}, healthy(), inconclusive},

	{"ends", "passing", "in time", endedSpec, ended(1500), pass},
	{"ends", "failing", "too late", endedSpec, ended(2001), fail},
	{"ends", "failing", "not at all", endedSpec, ended(1500).broken("down"), fail},
	{"ends", "degenerate", "it had ended before it was told", endedSpec, history().served("r1", 0, 5, 90).step("down", 0, 1).step("shutdown", 10, 11), inconclusive},
	{"ends", "degenerate", "it had served nobody", endedSpec, ended(1500).unseen("r1"), inconclusive},
	{"ends", "degenerate", "nobody told it", endedSpec, ended(1500).without("shutdown"), inconclusive},
	{"ends", "degenerate", "no limit", checks.Spec{IDs: []string{"r1"}, After: "shutdown", Mark: "down"}, ended(1500), inconclusive},

	{"completed", "passing", "with so many tokens", checks.Spec{IDs: []string{"r1"}, Tokens: 5}, routed().c("r1", func(c *evidence.Client) { c.Tokens = 5 }), pass},
	{"completed", "failing", "with fewer", checks.Spec{IDs: []string{"r1"}, Tokens: 5}, routed().c("r1", func(c *evidence.Client) { c.Tokens = 4 }), fail},
}
