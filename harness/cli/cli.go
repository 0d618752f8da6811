// Package cli is the command line of weir: each command is a documented struct with a Run method, one noun a file.
//
//	certify  judge  report  selfcheck  list      work on verdicts
//	submit  verify  results-table                publish them
//	picker  gateway  sim-vllm  load  up          run the parts
//	processor  enqueue  results  prometheus      the asynchronous half
//	cluster                                      clusters, and what is deployed there
//
// Exit status: 0 all pass, 1 a requirement failed, 2 usage or harness error, 3 inconclusive or invalid, 130 interrupted.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/llm-weir/weir/harness/verdict"
)

// Version is weir's own version.
const Version = "0.1.0"

// Exit statuses.
const (
	ExitPass         = 0
	ExitFail         = 1
	ExitError        = 2
	ExitInconclusive = 3
	ExitInterrupted  = 130
)

type root struct {
	Certify           certifyCmd           `cmd:"" help:"Certify a router: play the catalogue, seal the evidence, give verdicts."`
	CertifyAsync      certifyAsyncCmd      `cmd:"" name:"certify-async" help:"Certify an Async Processor: play its catalogue, seal the evidence, give verdicts."`
	CertifyDeployment certifyDeploymentCmd `cmd:"" name:"certify-deployment" help:"Certify a deployment in a cluster: pods that come and go, rolling updates, networks."`
	Judge             judgeCmd             `cmd:"" help:"Judge a bundle again, with no router running."`
	Report            reportCmd            `cmd:"" help:"Write the reports of a bundle again."`
	Submit            submitCmd            `cmd:"" help:"Publish a bundle as a submission: reports, evidence, README, badge."`
	Verify            verifyCmd            `cmd:"" help:"Check bundles and submissions: hashes, verdicts, texts, from the evidence."`
	Table             tableCmd             `cmd:"" name:"results-table" help:"Write the table of all submissions of a results folder."`
	Selfcheck         selfcheckCmd         `cmd:"" help:"Show that the suite can fail: play every mutant of the reference."`
	List              listCmd              `cmd:"" help:"List requirements, scenarios, profiles, presets or mutants."`
	Up                upCmd                `cmd:"" help:"Run the local stack in the foreground: gateway, picker, model servers."`
	Picker            pickerCmd            `cmd:"" help:"Run the reference Endpoint Picker."`
	Gateway           gatewayCmd           `cmd:"" help:"Run the HTTP data plane in front of any ext_proc picker."`
	SimVLLM           simCmd               `cmd:"" name:"sim-vllm" help:"Run one simulated vLLM server."`
	Processor         processorCmd         `cmd:"" help:"Run the reference Async Processor."`
	Mutant            mutantProcessorCmd   `cmd:"" name:"mutant-processor" hidden:"" help:"Run a faulty variant of the reference Async Processor, for the self-check."`
	Enqueue           enqueueCmd           `cmd:"" help:"Put requests into a queue of an Async Processor."`
	Results           resultsCmd           `cmd:"" help:"Take results of an Async Processor out of their list."`
	Prom              prometheusCmd        `cmd:"" name:"prometheus" help:"Run an embedded Prometheus: scrape pages, answer PromQL."`
	Redis             redisCmd             `cmd:"" hidden:"" help:"Run an embedded Redis-compatible server, for tests only."`
	Errand            errandCmd            `cmd:"" hidden:"" help:"Run a command in a pod, for somebody outside of the cluster."`
	Cluster           clusterCmd           `cmd:"" help:"Make, fill and clear clusters: kind ones of our own, and namespaces of others."`
	Load              loadCmd              `cmd:"" help:"Send a workload to any OpenAI endpoint and record what became of it."`
	Version           versionCmd           `cmd:"" help:"Print the version."`
}

// console is where a command speaks.
type console struct {
	out, err io.Writer
	ctx      context.Context
}

// exitError ends the process with a status of its own; its text, if any, is printed.
type exitError struct {
	status int
	text   string
}

func (e *exitError) Error() string { return e.text }

// Main runs the command line and exits.
func Main() { os.Exit(Run(os.Args[1:], os.Stdout, os.Stderr)) }

// Run runs one command and gives the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return runIn(ctx, args, stdout, stderr)
}

// runIn runs one command until it ends or ctx tells it to.
func runIn(ctx context.Context, args []string, stdout, stderr io.Writer) (status int) {
	var r root
	exited := false
	parser, err := kong.New(&r, kong.Name("weir"), kong.UsageOnError(), kong.Writers(stdout, stderr),
		kong.Description("Conformance and benchmark harness for the flow control of LLM inference routers.\n\n"+
			"Exit status: 0 all pass, 1 a requirement failed, 2 usage or harness error, 3 inconclusive or invalid, 130 interrupted."),
		kong.Exit(func(code int) { exited = true; status = code }), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		fmt.Fprintln(stderr, "weir:", err)
		return ExitError
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k, err := parser.Parse(args)
	if exited {
		return status
	}
	if err != nil {
		fmt.Fprintf(stderr, "weir: %v (weir --help shows the commands, weir COMMAND --help its flags)\n", err)
		return ExitError
	}
	err = k.Run(&console{out: stdout, err: stderr, ctx: ctx})
	var ex *exitError
	switch {
	case err == nil:
		return ExitPass
	case errors.As(err, &ex):
		if ex.text != "" {
			fmt.Fprintln(stderr, "weir:", ex.text)
		}
		return ex.status
	}
	fmt.Fprintln(stderr, "weir:", err)
	return ExitError
}

// exitFor maps the verdict of a run to the exit status.
func exitFor(k verdict.Kind) error {
	switch k {
	case verdict.Pass:
		return nil
	case verdict.Fail:
		return &exitError{status: ExitFail}
	case verdict.Error:
		return &exitError{status: ExitError}
	}
	return &exitError{status: ExitInconclusive}
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(c *console) error {
	_, err := fmt.Fprintf(c.out, "weir %s (%s)\n", Version, commit())
	return err
}

// commit is the revision this binary was built from, as far as the build knows.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	rev, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	return rev + dirty
}
