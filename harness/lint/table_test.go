package lint

// cores are the deterministic machines.
var cores = []string{"reference/flowcontrol", "reference/scheduling", "reference/picker", "reference/async", "sim-vllm/engine",
	"loadgen/arrival", "loadgen/plan"}

// importRow is one row of the table of who may import whom. Patterns are packages, or "x/..." for x and everything under it;
// packages of this module are named relative to its root, others by their full path.
type importRow struct {
	name   string
	from   []string
	except []string // packages to which the row does not apply
	deny   []string
	allow  []string // exceptions from deny
	// direct looks at a package's own imports only; otherwise the row holds for whatever the package reaches inside this module.
	direct bool
	// tests: the row binds _test.go files too.
	tests bool
	why   string
}

// importTable says who may import whom.
var importTable = []importRow{
	{
		name: "cores do no I/O and keep no clock",
		from: cores,
		deny: []string{"sync/...", "context", "os/...", "net/...", "log/...", "syscall", "crypto/rand"},
		// A URL and an address are values.
		allow: []string{"net/url", "net/netip"},
		why:   "a core is a machine: Step(now, event) is the only way in; move I/O, locks and goroutines to its driver",
	},
	{
		name: "the reference stands alone", from: []string{"reference/..."}, tests: true,
		deny:  []string{"sim-vllm/...", "loadgen/...", "suites/...", "harness/..."},
		allow: []string{"harness/clock", "harness/wire"},
		why:   "the reference is a system under test like any other and may know only harness/clock and harness/wire",
	},
	{
		name: "the simulator stands alone", from: []string{"sim-vllm/..."}, tests: true,
		deny: []string{"reference/...", "suites/...", "loadgen/..."},
		why:  "the simulator must not know who drives it",
	},
	{
		name: "the load generator stands alone", from: []string{"loadgen/..."}, tests: true,
		deny: []string{"reference/...", "suites/...", "sim-vllm/..."},
		why:  "the load generator must not know whom it drives",
	},
	{
		name: "judges see evidence only", from: []string{"harness/verdict", "harness/checks", "harness/report", "harness/stats"}, tests: true,
		deny: []string{"reference/...", "sim-vllm/...", "loadgen/runner", "loadgen/openai", "loadgen/queue"},
		why:  "a check is a pure function of evidence; what it needs must be in the bundle",
	},
	{
		name: "judges do no I/O", from: []string{"harness/verdict", "harness/checks", "harness/stats"}, direct: true,
		deny:  []string{"os/...", "net/...", "log/...", "syscall", "io/ioutil"},
		allow: []string{"net/url", "net/netip"},
		why:   "judging reads nothing but its arguments; open files in harness/run or harness/evidence",
	},
	{
		name: "the report writes files and nothing else", from: []string{"harness/report"}, direct: true,
		deny:  []string{"os/exec", "os/signal", "os/user", "net/...", "log/...", "syscall"},
		allow: []string{"net/url"},
		why:   "a report is made from a bundle, without network or programs",
	},
	{
		name: "suites know only the system under test", from: []string{"suites/..."},
		deny: []string{"reference/...", "sim-vllm/...", "harness/env/...", "k8s.io/...", "sigs.k8s.io/..."},
		why:  "suites know only harness/sut.System, so that a closed router can be judged; wire environments in _test.go or harness/cli",
	},
	{
		name: "Kubernetes stays at the edge", from: []string{"..."}, direct: true, tests: true,
		except: []string{"reference/kube/...", "harness/env/kind/...", "harness/env/cluster/...", "harness/kubeapi/..."},
		deny:   []string{"k8s.io/...", "sigs.k8s.io/..."},
		why:    "only reference/kube, harness/env/{kind,cluster} and harness/kubeapi may import Kubernetes libraries",
	},
}

// topLevel are the entries that may stand in the top folder, beside dot-files.
var topLevel = []string{"reference", "harness", "suites", "loadgen", "manifests", "results", "sim-vllm", "hack", "Makefile", "go.mod",
	"go.sum", "README.md", "main.go", "LICENSE", "NOTICE", "CHANGELOG.md"}

// emptyNames say nothing about what is inside.
var emptyNames = []string{"util", "utils", "common", "types", "helper", "helpers"}
