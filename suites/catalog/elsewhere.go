package catalog

// elsewhere are the rows that no scenario can judge, with what shows them instead or why nothing does (hack/decisions/0004).
var elsewhere = map[string]string{
	"AP-TRN-10": "needs a server of another product; the suite runs on an embedded server and on redis-server (weir certify-async --redis-server)",
	"BEN-08":    "sweeps over every tested range are not built; BEN-06, BEN-15 and BEN-23 sweep some of them",
	"BEN-25":    "about reports: versions, seed and claim limits stand in manifest and reports (harness/report, harness/submit); runs are not compared with each other yet",
	"BEN-26":    "the cost of the picker's process is measured by make bench (results/bench)",
	"BEN-28":    "needs traces of real engines beside the simulator's; sim-vllm/presets names what its figures come from",
	"BEN-20":    "about calibrating max_concurrency on real accelerators; E2E-11 shows that the budget gate closes at the computed point",
	"BEN-22":    "needs a realtime trace beside batch work over hours; E2E-10 shows that batch work yields and returns",
	"E2E-13":    "the reference picker exports no spans; that producer, processor and gateway share one trace is AP-OTEL-04 and AP-OTEL-05",
	"E2E-16":    "a square wave of realtime beside batch work is not built; E2E-10 shows that batch work yields and returns, make bench what it costs",
	"FC-CLS-17": "about the policy of a platform's gateway, which is not the router that is judged",
	"FC-SAT-17": "a pod with two ports needs an environment whose model servers share an address; the reference's watcher is tested on it (reference/kube)",
	"FC-EVI-16": "the stream of a victim ends with the router's own refusal; that one which does not end is given up is shown by scripts (reference/picker)",
	"FC-EVI-19": "a duty of whoever owns the retries, not of the router; the tests of the reference processor show it",
	"INV-09":    "a rule of judgement: no check reads the router's gauge for what runs (harness/checks)",
	"INV-16":    "a rule of judgement: tried in the tests of every check and in harness/run",
	"INV-17":    "a rule of judgement: checks, tolerances and sample sizes are in the manifest, and the manifest is hashed before the run",
	"INV-18":    "about the harness: known-answer tests of loadgen and sim-vllm, and weir selfcheck",
	"INV-21":    "needs a proxy that is not ours on the machine",
}

// Elsewhere says why no scenario judges a row; false if one should.
func Elsewhere(id string) (string, bool) {
	why, ok := elsewhere[id]
	return why, ok
}
