package checks_test

import (
	"fmt"
	"math"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
)

type labels = map[string]string

const (
	now = wire.PrefixFlowControl
	old = wire.PrefixLegacyFC
)

// waited are a dispatch after 900 ms and a refusal after 600, between two pages that count three and five waits.
func waited() *hist { return waitedFor(1.5, 5) }

func waitedFor(sum, count float64) *hist {
	return history().served("plug", 0, 1, 1000).step("before", 10, 20).step("after", 2000, 2010).
		served("w1", 100, 1000, 1500).refused("w2", 200, 800, 503, "late").
		sample("before", "d_count", 1, labels{"o": "x"}).sample("before", "d_count", 2, labels{"o": "y"}).sample("before", "d_sum", 4, nil).
		sample("after", "d_count", 2, labels{"o": "x"}).sample("after", "d_count", count-2, labels{"o": "y"}).sample("after", "d_sum", 4+sum, nil)
}

var waitsSpec = checks.Spec{Before: "before", Mark: "after", IDs: []string{"w1", "w2"}, Names: []string{"d"}, Min: 500 * time.Millisecond, Margin: 0.05}

func waitsWith(f func(*checks.Spec)) checks.Spec { s := waitsSpec; f(&s); return s }

// twinned is a page on which three series have two names, and one has only one.
func twinned() *hist {
	h := history().step("sampled", 0, 1)
	for _, p := range []string{now, old} {
		h.sample("sampled", p+"queue_size", 1, labels{"t": "a", "p": "0"}).sample("sampled", p+"queue_size", 2, labels{"t": "b", "p": "0"}).
			sample("sampled", p+"queue_size", 0, labels{"t": "c", "p": "0"}).sample("sampled", p+"pool_saturation", 0.5, nil)
	}
	return h.sample("sampled", now+"requests_total", 7, labels{"outcome": "Dispatched"})
}

var twinsSpec = checks.Spec{Mark: "sampled", Needed: 3}

// counted are two served, one of them left while it ran, one refused and one left while it waited.
func counted() *hist {
	return history().served("d1", 0, 1, 100).left("d2", 0, 90).backend("d2", "a", 2, 91, evidence.Aborted).
		refused("r1", 10, 11, 429, wire.ReasonSaturated).left("x1", 10, 80).step("counted", 500, 501).served("after", 600, 601, 610).
		sample("counted", "n", 2, labels{"outcome": "Dispatched"}).sample("counted", "n", 1, labels{"outcome": "RejectedCapacity"}).
		sample("counted", "n", 1, labels{"outcome": "EvictedContextCancelled"}).sample("counted", "n", 0, labels{"outcome": "EvictedTTL"})
}

var countsSpec = checks.Spec{Mark: "counted", Names: []string{"n"}, Needed: 1, Kinds: 3}

// tenants are four that were served, under a cap of two label values and one for the rest.
func tenants() *hist {
	h := history().step("sampled", 500, 501)
	for i := range 4 {
		id := fmt.Sprintf("t%d", i)
		h.served(id, 0, i+1, 100).c(id, func(c *evidence.Client) { c.Tenant = id })
	}
	return h.sample("sampled", "q", 0, labels{"f": "t0", "p": "0"}).sample("sampled", "q", 0, labels{"f": "t1", "p": "0"}).
		sample("sampled", "q", 0, labels{"f": "t1", "p": "1"}).sample("sampled", "q", 0, labels{"f": "other", "p": "0"})
}

var valuesSpec = checks.Spec{Mark: "sampled", Mode: "f", Count: 3, Needed: 4, Names: []string{"q"}}

func valuesWith(f func(*checks.Spec)) checks.Spec { s := valuesSpec; f(&s); return s }

// collected is a page on which the series of g was shown, and a later one without it.
func collected() *hist {
	return history().step("before", 0, 10).step("gone", 1000, 1010).
		sample("before", "q", 1, labels{"f": "g", "p": "0"}).sample("before", "q", 1, labels{"f": "h", "p": "0"}).sample("gone", "q", 0, labels{"f": "h", "p": "0"})
}

// endpointGone is an endpoint that is taken out.
func endpointGone(name string) *hist {
	return history().step("before", 0, 10).step("gone", 1000, 1010).sample("before", "q", 1, labels{"model_server_endpoint": name}).
		sample("before", "q", 1, labels{"model_server_endpoint": "b"}).sample("gone", "q", 1, labels{"model_server_endpoint": "b"})
}

var ofEndpoint = checks.Spec{Before: "before", Mark: "gone", Names: []string{"q"}, Series: []checks.Series{{Labels: labels{"model_server_endpoint": "a"}, Value: 1}}}

var collectedSpec = checks.Spec{Before: "before", Mark: "gone", Names: []string{"q"}, Series: []checks.Series{{Labels: labels{"f": "g"}, Value: 1}}}

func collectedWith(f func(*checks.Spec)) checks.Spec { s := collectedSpec; f(&s); return s }

// steps replaces the two pages by ones at other instants.
func steps(h *hist, before, after int) *hist {
	return h.without("before").without("after").without("gone").step("before", before, before+1).step("after", after, after+1).step("gone", after, after+1)
}

func named(name string) func(evidence.Sample) bool {
	return func(sm evidence.Sample) bool { return sm.Name == name }
}

func marked(mark string) func(evidence.Sample) bool {
	return func(sm evidence.Sample) bool { return sm.Mark == mark }
}

func elsewhere(sm *evidence.Sample) { sm.Source = "a" }

func reads(name string, v float64) func(*evidence.Sample) {
	return func(sm *evidence.Sample) {
		if sm.Name == name {
			sm.Value = v
		}
	}
}

var sampleTrials = []trial{
	{"waits", "passing", "two waits of a second and a half", waitsSpec, waited(), pass},
	{"waits", "failing", "one more observation", waitsSpec, waitedFor(1.5, 6), fail},
	{"waits", "failing", "one less", waitsSpec, waitedFor(1.5, 4), fail},
	{"waits", "failing", "the sum is too large", waitsSpec, waitedFor(1.6, 5), fail},
	{"waits", "failing", "the sum is too small", waitsSpec, waitedFor(1.4, 5), fail},
	{"waits", "failing", "it counts, and measures nothing", waitsSpec, waitedFor(0, 5), fail},
	{"waits", "failing", "no histogram of that name", waitsWith(func(s *checks.Spec) { s.Names = []string{"d", "older"} }), waited(), fail},
	{"waits", "failing", "it has no sum", waitsSpec, waited().drop(named("d_sum")), fail},
	{"waits", "degenerate", "the sum is no number", waitsSpec, waitedFor(math.NaN(), 5), fail},
	{"waits", "degenerate", "the sum before is no number", waitsSpec, waited().sample("before", "d_sum", math.NaN(), nil), fail},
	{"waits", "degenerate", "the sum is endless", waitsSpec, waitedFor(math.Inf(1), 5), fail},
	{"waits", "degenerate", "the count is no number", waitsSpec, waitedFor(1.5, math.NaN()), fail},
	{"waits", "degenerate", "only a model server's page shows it", waitsSpec, waited().s(elsewhere), fail},
	{"waits", "degenerate", "one was not sent", waitsSpec, waited().c("w1", sentNever), inconclusive},
	{"waits", "degenerate", "no client sent one", waitsSpec, waited().unsent("w1"), inconclusive},
	{"waits", "degenerate", "the model server's record of one that was served is lost", waitsSpec, waited().unseen("w1"), inconclusive},
	{"waits", "degenerate", "it arrived at no instant", waitsSpec, waited().b("w1", arrivesNever), inconclusive},
	{"waits", "degenerate", "it was refused at no instant", waitsSpec, waited().c("w2", endsNever), inconclusive},
	{"waits", "degenerate", "one waited too short to tell", waitsWith(func(s *checks.Spec) { s.Min = 700 * time.Millisecond }), waited(), inconclusive},
	{"waits", "degenerate", "one was waiting already", waitsSpec, steps(waited(), 150, 2000), inconclusive},
	{"waits", "degenerate", "one was waiting still", waitsSpec, steps(waited(), 10, 900), inconclusive},
	{"waits", "degenerate", "the first page was not read", waitsSpec, waited().broken("before"), inconclusive},
	{"waits", "degenerate", "the second page was not read", waitsSpec, waited().broken("after"), inconclusive},
	{"waits", "degenerate", "there was no first page", waitsSpec, waited().without("before"), inconclusive},
	{"waits", "degenerate", "no name", waitsWith(func(s *checks.Spec) { s.Names = nil }), waited(), inconclusive},
	{"waits", "degenerate", "no ids", waitsWith(func(s *checks.Spec) { s.IDs = nil }), waitedFor(0, 3), inconclusive},
	{"waits", "degenerate", "no wait is named", waitsWith(func(s *checks.Spec) { s.Min = 0 }), waited(), inconclusive},
	{"waits", "degenerate", "a margin that allows everything", waitsWith(func(s *checks.Spec) { s.Margin = 1 }), waited(), inconclusive},

	{"twins", "passing", "three pairs read something", twinsSpec, twinned(), pass},
	{"twins", "failing", "one differs by one", twinsSpec, twinned().sample("sampled", old+"queue_size", 1, labels{"t": "a", "p": "0"}), fail},
	{"twins", "failing", "a series is missing under the older name", twinsSpec, twinned().sample("sampled", now+"queue_size", 1, labels{"t": "d", "p": "0"}), fail},
	{"twins", "failing", "a series is missing under the newer name", twinsSpec, twinned().sample("sampled", old+"queue_size", 1, labels{"t": "d", "p": "0"}), fail},
	{"twins", "failing", "they belong to different tenants", twinsSpec, twinned().drop(func(sm evidence.Sample) bool { return sm.Name == old+"queue_size" && sm.Labels["t"] == "b" }).
		sample("sampled", old+"queue_size", 2, labels{"t": "x", "p": "0"}), fail},
	{"twins", "passing", "a label that only one of the names has tells no series apart", twinsSpec, twinned().s(func(sm *evidence.Sample) {
		if sm.Name == now+"pool_saturation" {
			sm.Labels = labels{"stage": "effective"}
		}
	}), pass},
	{"twins", "degenerate", "neither is a number", twinsSpec, twinned().s(reads(now+"pool_saturation", math.NaN())).s(reads(old+"pool_saturation", math.NaN())), fail},
	{"twins", "degenerate", "one is no number", twinsSpec, twinned().s(reads(old+"pool_saturation", math.NaN())), fail},
	{"twins", "degenerate", "a series without a twin that is no number", twinsSpec, twinned().sample("sampled", old+"queue_size", math.NaN(), labels{"t": "d", "p": "0"}), fail},
	{"twins", "degenerate", "a series of which only one name shows a 0", twinsSpec, twinned().sample("sampled", now+"queue_size", 0, labels{"t": "d", "p": "0"}), pass},
	{"twins", "degenerate", "only two pairs read something", twinsSpec, twinned().s(reads(now+"pool_saturation", 0)).s(reads(old+"pool_saturation", 0)), inconclusive},
	{"twins", "degenerate", "the older names are not published", twinsSpec, twinned().drop(func(sm evidence.Sample) bool { return sm.Name[:len(old)] == old }), inconclusive},
	{"twins", "degenerate", "they are on a model server's page", twinsSpec, twinned().s(elsewhere), inconclusive},
	{"twins", "degenerate", "they are of another page", twinsSpec, twinned().s(func(sm *evidence.Sample) { sm.Mark = "later" }), inconclusive},
	{"twins", "degenerate", "the page was not read", twinsSpec, twinned().broken("sampled"), inconclusive},
	{"twins", "degenerate", "no page", twinsSpec, twinned().without("sampled"), inconclusive},

	{"outcome-counts", "passing", "three outcomes, as they were seen", countsSpec, counted(), pass},
	{"outcome-counts", "failing", "one outcome too many", countsSpec, counted().sample("counted", "n", 1, labels{"outcome": "Dispatched", "p": "1"}), fail},
	{"outcome-counts", "failing", "an outcome that nobody saw", countsSpec, counted().sample("counted", "n", 1, labels{"outcome": "EvictedTTL"}), fail},
	{"outcome-counts", "failing", "an outcome without a name", countsSpec, counted().sample("counted", "n", 1, nil), fail},
	{"outcome-counts", "failing", "an outcome of another name", countsSpec, counted().sample("counted", "n", 1, labels{"outcome": "NotYetFinalized"}), fail},
	{"outcome-counts", "failing", "an outcome is missing", countsSpec, counted().drop(func(sm evidence.Sample) bool { return sm.Labels["outcome"] == "RejectedCapacity" }), fail},
	{"outcome-counts", "failing", "no counter of one name", checks.Spec{Mark: "counted", Names: []string{"n", "older"}, Needed: 1, Kinds: 3}, counted(), fail},
	{"outcome-counts", "failing", "the router counts one that no client sent", countsSpec, counted().unsent("d1"), fail},
	{"outcome-counts", "failing", "who was left in flight was dispatched, not evicted", countsSpec, counted().unseen("d2"), fail},
	{"outcome-counts", "degenerate", "a count that is no number", countsSpec, counted().s(reads("n", math.NaN())), fail},
	{"outcome-counts", "degenerate", "an outcome that nobody saw is no number", countsSpec, counted().sample("counted", "n", math.NaN(), labels{"outcome": "EvictedOther"}), fail},
	{"outcome-counts", "degenerate", "only a model server's page shows it", countsSpec, counted().s(elsewhere), fail},
	{"outcome-counts", "degenerate", "one was served that no model server knows", countsSpec, counted().unseen("d1"), inconclusive},
	{"outcome-counts", "degenerate", "one arrived at no instant", countsSpec, counted().b("d1", arrivesNever), inconclusive},
	{"outcome-counts", "degenerate", "one was refused at no instant", countsSpec, counted().c("r1", endsNever), inconclusive},
	{"outcome-counts", "degenerate", "one was decided after the page", countsSpec, counted().c("x1", func(c *evidence.Client) { c.End = at(520) }), inconclusive},
	{"outcome-counts", "degenerate", "one never ended", countsSpec, counted().client("z1", 0, 0, evidence.Unfinished, 0, ""), inconclusive},
	{"outcome-counts", "degenerate", "a refusal for no known cause", countsSpec, counted().c("r1", func(c *evidence.Client) { c.Reason = "because" }), inconclusive},
	{"outcome-counts", "degenerate", "too few of each", checks.Spec{Mark: "counted", Names: countsSpec.Names, Needed: 2, Kinds: 3}, counted(), inconclusive},
	{"outcome-counts", "degenerate", "too few kinds", checks.Spec{Mark: "counted", Names: countsSpec.Names, Needed: 1, Kinds: 4}, counted(), inconclusive},
	{"outcome-counts", "degenerate", "no number of each is needed", checks.Spec{Mark: "counted", Names: countsSpec.Names, Kinds: 3}, counted(), inconclusive},
	{"outcome-counts", "degenerate", "no name", checks.Spec{Mark: "counted", Needed: 1, Kinds: 3}, counted(), inconclusive},
	{"outcome-counts", "degenerate", "the page was not read", countsSpec, counted().broken("counted"), inconclusive},

	{"label-values", "passing", "three values for four tenants", valuesSpec, tenants(), pass},
	{"label-values", "failing", "one value too many", valuesSpec, tenants().sample("sampled", "q", 0, labels{"f": "t2", "p": "0"}), fail},
	{"label-values", "failing", "no series of that name", valuesWith(func(s *checks.Spec) { s.Names = []string{"q", "older"} }), tenants(), fail},
	{"label-values", "failing", "no series has the label", valuesWith(func(s *checks.Spec) { s.Mode = "model_name" }), tenants(), fail},
	{"label-values", "failing", "one series does not have the label", valuesSpec, tenants().sample("sampled", "q", 0, labels{"p": "2"}), fail},
	{"label-values", "degenerate", "only a model server's page shows it", valuesSpec, tenants().s(elsewhere), fail},
	{"label-values", "degenerate", "as many tenants as values are allowed", valuesWith(func(s *checks.Spec) { s.Count = 4 }), tenants(), inconclusive},
	{"label-values", "degenerate", "too few tenants were served", valuesSpec, tenants().c("t3", func(c *evidence.Client) { c.Outcome = evidence.Refused }), inconclusive},
	{"label-values", "degenerate", "no model server knows one of them", valuesSpec, tenants().unseen("t3"), inconclusive},
	{"label-values", "degenerate", "one of them arrived at no instant", valuesSpec, tenants().b("t3", arrivesNever), inconclusive},
	{"label-values", "degenerate", "two requests of one tenant", valuesSpec, tenants().c("t3", func(c *evidence.Client) { c.Tenant = "t2" }), inconclusive},
	{"label-values", "degenerate", "who names no tenant is none", valuesSpec, tenants().c("t3", func(c *evidence.Client) { c.Tenant = "" }), inconclusive},
	{"label-values", "degenerate", "no name", valuesWith(func(s *checks.Spec) { s.Names = nil }), tenants(), inconclusive},
	{"label-values", "degenerate", "no label", valuesWith(func(s *checks.Spec) { s.Mode = "" }), tenants(), inconclusive},
	{"label-values", "degenerate", "the page was not read", valuesSpec, tenants().broken("sampled"), inconclusive},

	{"gone", "passing", "the series of one is removed, the other stays", collectedSpec, collected(), pass},
	{"gone", "passing", "an endpoint under the name that Kubernetes gives it", ofEndpoint, endpointGone("a-rank-0"), pass},
	{"gone", "failing", "an endpoint under that name is still there", ofEndpoint, endpointGone("a-rank-0").sample("gone", "q", 0, labels{"model_server_endpoint": "a-rank-0"}), fail},
	{"gone", "degenerate", "another endpoint", ofEndpoint, endpointGone("a-rank-1"), inconclusive},
	{"gone", "failing", "it still reads something", collectedSpec, collected().sample("gone", "q", 1, labels{"f": "g", "p": "0"}), fail},
	{"gone", "failing", "it still reads 0", collectedSpec, collected().sample("gone", "q", 0, labels{"f": "g", "p": "0"}), fail},
	{"gone", "failing", "it is back under another priority", collectedSpec, collected().sample("gone", "q", 0, labels{"f": "g", "p": "1"}), fail},
	{"gone", "degenerate", "it still reads what is no number", collectedSpec, collected().sample("gone", "q", math.NaN(), labels{"f": "g", "p": "0"}), fail},
	{"gone", "degenerate", "the later page shows nothing at all", collectedSpec, collected().drop(marked("gone")), inconclusive},
	{"gone", "degenerate", "only a model server's page shows anything later", collectedSpec, collected().drop(marked("gone")).sample("gone", "q", 1, labels{"f": "h"}).s(func(sm *evidence.Sample) {
		if sm.Mark == "gone" {
			elsewhere(sm)
		}
	}), inconclusive},
	{"gone", "degenerate", "it was not there before", collectedSpec, collected().drop(func(sm evidence.Sample) bool { return sm.Labels["f"] == "g" }), inconclusive},
	{"gone", "degenerate", "it read 0 before", collectedSpec, collected().s(func(sm *evidence.Sample) { sm.Value = 0 }), inconclusive},
	{"gone", "degenerate", "it was there under one name only", collectedWith(func(s *checks.Spec) { s.Names = []string{"q", "older"} }), collected(), inconclusive},
	{"gone", "degenerate", "the later page was read first", collectedSpec, steps(collected(), 1000, 5), inconclusive},
	{"gone", "degenerate", "the first page was not read", collectedSpec, collected().broken("before"), inconclusive},
	{"gone", "degenerate", "the later page was not read", collectedSpec, collected().broken("gone"), inconclusive},
	{"gone", "degenerate", "no later page", collectedSpec, collected().without("gone"), inconclusive},
	{"gone", "degenerate", "no name", collectedWith(func(s *checks.Spec) { s.Names = nil }), collected(), inconclusive},
	{"gone", "degenerate", "no series", collectedWith(func(s *checks.Spec) { s.Series = nil }), collected(), inconclusive},

	{"series", "passing", "each series that matches reads the value", eachSpec, eachHist(), pass},
	{"series", "failing", "one of the series that match reads another", eachSpec, eachHist().sample("sampled", "sat", 0.6, labels{"stage": "decode", "pool": "q"}), fail},
	{"series", "failing", "they only add up to it", eachSpec, eachHist().s(reads("sat", 0.45)), fail},
	{"series", "failing", "none matches", eachSpec, eachHist().s(func(sm *evidence.Sample) { sm.Labels = labels{"stage": "prefill"} }), fail},
	{"series", "degenerate", "one of them is no number", eachSpec, eachHist().sample("sampled", "sat", math.NaN(), labels{"stage": "decode", "pool": "q"}), fail},
	{"series", "degenerate", "the page after draining shows nothing at all", gaugeSpec, gauge().drop(marked("zero")), inconclusive},
}

// eachHist is a page on which two series read the same value, and one of another stage does not.
func eachHist() *hist {
	return history().step("sampled", 0, 1).sample("sampled", "sat", 0.9, labels{"stage": "decode", "pool": "p"}).
		sample("sampled", "sat", 0.9, labels{"stage": "decode", "pool": "r"}).sample("sampled", "sat", 0.5, labels{"stage": "prefill", "pool": "p"})
}

var eachSpec = checks.Spec{Mark: "sampled", Mode: "each", Names: []string{"sat"}, Margin: 0.01, Series: []checks.Series{{Labels: labels{"stage": "decode"}, Value: 0.9}}}
