// Package async has the scenarios of Async Processors, as literals that cite the requirement catalogue by id (families AP-*). Each is one
// configuration: a processor or two, a broker, upstreams in the place of the gateway, and what is done to them. Nothing in here plays or
// judges anything.
package async

import (
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// Scenarios lists them in the order of the catalogue.
func Scenarios() []scenario.Scenario {
	return slices.Concat(transportScenarios, poolScenarios, gateScenarios, slotGateScenarios, promGateScenarios, budgetGateScenarios, pageGateScenarios, quotaScenarios, retryScenarios, drainScenarios, metricScenarios, tierScenarios, mergeScenarios, resultScenarios, wireScenarios, transformScenarios, reloadScenarios,
		configScenarios, flagScenarios, olderFlagScenarios, healthScenarios, tracingScenarios, pubsubScenarios)
}

// Short names: the literals below are read as tables.
type (
	script  = scenario.Async
	want    = checks.Async
	doc     = scenario.Doc
	step    = sut.AsyncStep
	value   = checks.ValueWant
	attempt = checks.AttemptWant
)

const (
	sec  = time.Second
	msec = time.Millisecond
)

// fairness is the header of the tenant's stamp.
const fairness = "x-llm-d-inference-fairness-id"

// any number from n on.
const more = -1

// a scenario of a processor.
func play(name, title string, write func(a *script)) scenario.Scenario {
	return scenario.Scenario{Name: "async-" + name, Title: title, Write: scenario.Of(write)}
}

// alone keeps everything else away while a scenario plays: its figures depend on the machine's own load.
func alone(sc scenario.Scenario) scenario.Scenario {
	sc.Alone = true
	return sc
}

// numbered gives prefix0 to prefix(n-1).
func numbered(prefix string, n int) []string {
	var out []string
	for _, m := range scenario.Messages(prefix, n) {
		out = append(out, m.ID)
	}
	return out
}
