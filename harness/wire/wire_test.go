package wire_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/wire"
)

func TestOutcomeRoundTrip(t *testing.T) {
	all := wire.Outcomes()
	seen := map[string]bool{}
	for _, o := range all {
		back, err := wire.ParseOutcome(o.String())
		if err != nil || back != o {
			t.Errorf("%v came back as %v, %v", o, back, err)
		}
		if seen[o.String()] {
			t.Errorf("%v is a name of two outcomes", o)
		}
		seen[o.String()] = true
	}
	// spec/endpoint-picker.md §5.2 lists the values of the metric label.
	for _, name := range []string{"Dispatched", "RejectedCapacity", "RejectedNoEndpoints", "RejectedOther", "EvictedTTL", "EvictedNoEndpoints",
		"EvictedContextCancelled", "EvictedOther", "NotYetFinalized"} {
		if !seen[name] {
			t.Errorf("the specified outcome %s is missing", name)
		}
	}
	if len(all) != 9 || all[0] != wire.NotYetFinalized {
		t.Errorf("outcomes %v: nine, and the zero value decides nothing", all)
	}
	for _, s := range []string{"", "dispatched", "Outcome(9)"} {
		if _, err := wire.ParseOutcome(s); err == nil {
			t.Errorf("%q is no outcome", s)
		}
	}
	if got := wire.Outcome(99).String(); got != "Outcome(99)" {
		t.Errorf("an unknown outcome is written as %q", got)
	}
}

// The table is spec/endpoint-picker.md §5.1 (and §5.3 for the last row), written down a second time on purpose.
func TestRefuseFollowsTheSpecification(t *testing.T) {
	for _, c := range []struct {
		says      string
		outcome   wire.Outcome
		ttlStatus int
		status    int
		reason    string
		body      string
	}{
		{"a full queue", wire.RejectedCapacity, 429, 429, "rejected-saturated", "ResourceExhausted - request rejected pre-queue: queue at capacity"},
		{"no endpoints before queueing", wire.RejectedNoEndpoints, 429, 503, "rejected-no-endpoints", "ServiceUnavailable - no endpoints available: request rejected pre-queue: no endpoints available"},
		{"the wait limit in later builds", wire.EvictedTTL, 429, 429, "rejected-ttl-expired", "ResourceExhausted - request timed out in queue: request evicted from queue: request TTL expired"},
		{"the wait limit in 0.9", wire.EvictedTTL, 503, 503, "rejected-ttl-expired", "ServiceUnavailable - request timed out in queue: request evicted from queue: request TTL expired"},
		{"the wait limit on an empty pool", wire.EvictedNoEndpoints, 429, 503, "rejected-no-endpoints",
			"ServiceUnavailable - request timed out in queue and no endpoints are available: request evicted from queue: request TTL expired: no endpoints available"},
		{"the client left", wire.EvictedContextCancelled, 429, 503, "rejected-context-cancelled", "ServiceUnavailable - client disconnected: request evicted from queue: request context cancelled"},
		{"shut down while queued", wire.EvictedOther, 429, 503, "rejected-shutting-down", "ServiceUnavailable - flow controller shutting down: request evicted from queue: flow controller is not running"},
		{"shut down before queueing", wire.RejectedOther, 429, 503, "rejected-shutting-down", "ServiceUnavailable - flow controller shutting down: request rejected pre-queue: flow controller is not running"},
		{"a dispatched request is no refusal", wire.Dispatched, 429, 500, "", "Internal - internal flow control error: outcome Dispatched is no refusal"},
		{"an undecided one neither", wire.NotYetFinalized, 429, 500, "", "Internal - internal flow control error: outcome NotYetFinalized is no refusal"},
	} {
		got := wire.Refuse(c.outcome, c.ttlStatus)
		if want := (wire.Refusal{Status: c.status, Reason: c.reason, Body: "inference error: " + c.body}); got != want {
			t.Errorf("%s: %+v, want %+v", c.says, got, want)
		}
	}
	if got := wire.Evicted(); got.Status != 429 || got.Reason != "evicted" || strings.HasPrefix(got.Body, "inference error") {
		t.Errorf("stopped in flight: %+v", got)
	}
	for _, o := range wire.Outcomes() {
		if r := wire.Refuse(o, 429); r.Status < 400 {
			t.Errorf("%v is answered with %d, which would pass for a success", o, r.Status)
		}
	}
}

func TestJSONHash(t *testing.T) {
	for _, c := range []struct {
		says, a, b string
		same       bool
	}{
		{"white space means nothing", `{"a":1,"b":[1,2]}`, "{ \"a\" : 1,\n\t\"b\":[1, 2] }", true},
		{"key order means nothing", `{"a":1,"b":2}`, `{"b":2,"a":1}`, true},
		{"nor in nested objects", `{"x":{"a":1,"b":2}}`, `{"x":{"b":2,"a":1}}`, true},
		{"an escape is the character", `"gr\u00fc\u00dfe <b>"`, `"grüße \u003cb\u003e"`, true},
		{"the order of a list matters", `[1,2]`, `[2,1]`, false},
		{"no digit of a number is lost", `9007199254740993`, `9007199254740992`, false},
		{"also far behind the point", `0.1000000000000000055511151231257827`, `0.1`, false},
		{"two spellings of one number are one value", `{"t":0.70,"n":100}`, `{"t":0.7,"n":1e2}`, true},
		{"null is not absence", `{"a":null}`, `{}`, false},
		{"a string is no number", `"1"`, `1`, false},
		{"values differ", `{"a":1}`, `{"a":2}`, false},
	} {
		a, b := wire.JSONHash([]byte(c.a)), wire.JSONHash([]byte(c.b))
		if a == "" || b == "" || len(a) != 64 {
			t.Errorf("%s: no hash: %q %q", c.says, a, b)
		}
		if (a == b) != c.same {
			t.Errorf("%s: %s and %s", c.says, c.a, c.b)
		}
	}
	for _, c := range []struct{ says, body string }{
		{"nothing", ""}, {"an unfinished value", `{"a":`}, {"two values", `{} {}`}, {"something behind the value", `{}x`}, {"no JSON", "model=m"},
	} {
		if h := wire.JSONHash([]byte(c.body)); h != "" {
			t.Errorf("%s has the hash %s; two of them would mean the same", c.says, h)
		}
	}
}

func TestControlHeadersAreCanonical(t *testing.T) {
	seen := map[string]bool{}
	for _, h := range wire.ControlHeaders {
		if h != strings.ToLower(h) || seen[h] {
			t.Errorf("%q is listed twice, or not in lower case", h)
		}
		seen[h] = true
	}
	for _, h := range []string{wire.HeaderRequestID, wire.HeaderID, wire.HeaderScenario, wire.HeaderServedBy} {
		if slices.Contains(wire.ControlHeaders, h) {
			t.Errorf("%s is not addressed to the picker", h)
		}
	}
}
