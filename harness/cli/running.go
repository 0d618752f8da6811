package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/remote"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/sim-vllm/presets"
	"github.com/llm-weir/weir/sim-vllm/server"
	"github.com/llm-weir/weir/suites/catalog"
)

// runningFlags name a router that already runs.
type runningFlags struct {
	URL     string   `name:"url" placeholder:"URL" help:"Judge the router that already runs behind this URL. --sut says what stands around it: metrics, simulators, configurations or a command that configures it."`
	EPPAddr string   `name:"epp-addr" placeholder:"HOST:PORT" help:"Judge the picker that already serves ext_proc here, behind a gateway of ours. --sut as for --url."`
	Servers []string `name:"servers" placeholder:"HOST:PORT" help:"With --epp-addr: run simulated model servers at these addresses, which the picker has been told of. Default: addresses of the system's choice, which are printed."`
}

// argv are the flags as they were given.
func (f runningFlags) argv() []string {
	var a []string
	if f.URL != "" {
		a = append(a, "--url", f.URL)
	}
	if f.EPPAddr != "" {
		a = append(a, "--epp-addr", f.EPPAddr)
	}
	if len(f.Servers) > 0 {
		a = append(a, "--servers", strings.Join(f.Servers, ","))
	}
	return a
}

// runningRouter is a router that already runs, and what this program has put around it.
type runningRouter struct {
	descriptor sut.Descriptor
	front      string // address of a picker that gets a gateway of ours
	given      []configuration
	stack      stack
	options    remote.Options
}

// running reads what the flags say of a router that already runs; nil if they name none.
func (f runningFlags) running(con *console, p profile.Profile, e externalFlags) (*runningRouter, error) {
	r := &runningRouter{front: f.EPPAddr}
	if e.SUT != "" {
		d, err := sut.ReadDescriptor(e.SUT)
		if err != nil {
			if f.URL == "" && f.EPPAddr == "" {
				return nil, nil // for the reader of commands to complain of
			}
			return nil, fmt.Errorf("--sut: %w", err)
		}
		r.descriptor = d
	}
	if f.URL == "" && f.EPPAddr == "" && (e.EPP != "" || r.descriptor.Running == nil || r.descriptor.Command != "") {
		return nil, nil
	}
	switch {
	case f.URL != "" && f.EPPAddr != "", e.EPP != "":
		return nil, errors.New("--url, --epp-addr and --epp exclude each other")
	case len(f.Servers) > 0 && f.EPPAddr == "":
		return nil, errors.New("--servers belongs to --epp-addr: behind --url the simulators run already (running.simulators of the descriptor)")
	}
	if err := r.fill(f, p); err != nil {
		return nil, err
	}
	if err := r.serveSimulators(con, f); err != nil {
		r.close()
		return nil, err
	}
	r.options = remote.Options{Dialect: p.Config, Names: p.Headers, Implementation: r.descriptor.Implementation, Running: *r.descriptor.Running, Front: r.front,
		FrontTLS: r.descriptor.TLS}
	for _, g := range r.given {
		r.options.Given = append(r.options.Given, g.identity)
	}
	s, err := remote.New(r.options)
	if err == nil {
		err = s.Preflight(con.ctx)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// fill completes the descriptor from the flags and says what is missing.
func (r *runningRouter) fill(f runningFlags, p profile.Profile) error {
	d := &r.descriptor
	if d.Running == nil {
		d.Running = &sut.Running{}
	}
	d.Running.Gateway = cmp.Or(f.URL, d.Running.Gateway)
	if err := d.Running.Validate(); err != nil {
		return err
	}
	d.Organization, d.Project, d.Version = cmp.Or(d.Organization, "unknown"), cmp.Or(d.Project, cmp.Or(f.EPPAddr, d.Running.Gateway)), cmp.Or(d.Version, "unknown")
	if d.Features == nil {
		for _, x := range sut.Features() {
			d.Features = append(d.Features, string(x))
		}
	}
	if d.Running.Configure.Command != "" {
		return nil
	}
	for _, name := range d.Running.Configurations {
		g, err := findConfiguration(p, name)
		if err != nil {
			return fmt.Errorf("running.configurations: %w", err)
		}
		if !slices.ContainsFunc(r.given, func(x configuration) bool { return x.identity == g.identity }) {
			r.given = append(r.given, g)
		}
	}
	switch {
	case len(r.given) == 0:
		return errors.New("nobody says which configuration the router has: name it in running.configurations of the descriptor (weir list configurations), or give " +
			"running.configure.command, which configures it for each scenario")
	case len(r.given) > 1:
		return fmt.Errorf("running.configurations: %s are different ones, and a router has one at a time: leave one, or give running.configure.command",
			strings.Join(d.Running.Configurations, ", "))
	}
	return nil
}

// serveSimulators runs the model servers behind a picker, where nobody else does.
func (r *runningRouter) serveSimulators(con *console, f runningFlags) error {
	run := r.descriptor.Running
	if f.EPPAddr == "" || len(run.Simulators) > 0 {
		return nil
	}
	addrs := f.Servers
	if len(addrs) == 0 {
		n := 3
		if len(r.given) > 0 {
			n = len(r.given[0].config.Endpoints)
		}
		addrs = slices.Repeat([]string{"127.0.0.1:0"}, n)
	}
	ec, err := presets.Get(presets.Instant)
	if err != nil {
		return err
	}
	run.Simulators = map[string]string{}
	clk, id := clock.NewReal(), "weir certify"
	var hosts []*server.Host
	for i, addr := range addrs {
		name := fmt.Sprintf("sim-%d", i)
		h, err := server.NewHost(server.Config{Name: name, Engine: ec, Clock: clk, ClockID: id}, presets.Get)
		if err != nil {
			return err
		}
		r.stack.stops = append(r.stack.stops, h.Close)
		at, err := r.stack.listen(name, addr, "--servers", h.Handler())
		if err != nil {
			return err
		}
		hosts = append(hosts, h)
		run.Simulators[name] = "http://" + at
		fmt.Fprintf(con.out, "model server %s: %s\n", name, at)
	}
	if len(f.Servers) == 0 && run.Configure.Command == "" {
		r.awaitScrapes(con, hosts)
	}
	return nil
}

// scrapePause is between two looks at whether a picker has found the model servers.
const scrapePause = 50 * time.Millisecond

// awaitScrapes waits until the picker has found model servers whose addresses were just printed. One that scrapes nobody is not waited for
// beyond the limit; the activation probe shows what it knows.
func (r *runningRouter) awaitScrapes(con *console, hosts []*server.Host) {
	limit := cmp.Or(r.descriptor.StartLimit, time.Minute)
	fmt.Fprintf(con.out, "waiting up to %s for the picker to scrape them: tell it of these addresses now\n", limit)
	ctx, cancel := context.WithTimeout(con.ctx, limit)
	defer cancel()
	for {
		if !slices.ContainsFunc(hosts, func(h *server.Host) bool { return h.Server().Scrapes() == 0 }) {
			return
		}
		if !clock.Sleep(ctx, scrapePause) {
			fmt.Fprintln(con.out, "not all of them were scraped")
			return
		}
	}
}

// system is the factory of the environment around the router.
func (r *runningRouter) system() func() sut.System {
	return func() sut.System {
		s, err := remote.New(r.options)
		if err != nil {
			panic(err) // the same options were good when they were read
		}
		return s
	}
}

// narrow fits a selection to a router of which there is one: scenarios one after the other, the activation probe first, and under the
// configuration that the router has where nothing gives it another.
func (r *runningRouter) narrow(o *run.Options, p profile.Profile) {
	if r == nil {
		return
	}
	o.Parallel, o.ProbeFirst = 1, true
	o.Manifest.Environment = "url"
	if r.front != "" {
		o.Manifest.Environment = "epp-addr"
	}
	o.Manifest.NoBackendLog = len(r.descriptor.Running.Simulators) == 0
	if r.front == "" {
		for i := range o.Scenarios {
			hideExchanges(&o.Scenarios[i])
		}
	}
	if len(r.given) == 0 {
		return
	}
	given := r.given[0]
	probes := func(c scenario.Compiled) bool { return slices.Contains(c.Requirements(), run.Probe) }
	if slices.ContainsFunc(given.scenarios, probes) {
		return
	}
	for _, like := range given.scenarios {
		if c, ok := catalog.Activation(like, p); ok {
			o.Scenarios = append([]scenario.Compiled{c}, slices.DeleteFunc(o.Scenarios, probes)...)
			return
		}
	}
}

// hideExchanges takes the checks out of a scenario that look between data plane and picker: behind a URL nobody sees that.
func hideExchanges(c *scenario.Compiled) {
	c.Checks = slices.DeleteFunc(slices.Clone(c.Checks), func(ch checks.Spec) bool {
		if !checks.ReadsExchanges(ch.Check) {
			return false
		}
		c.Excluded = append(c.Excluded, evidence.Exclusion{Requirement: ch.Requirement, Why: "what passes between data plane and picker cannot be seen behind a URL"})
		return true
	})
}

// close ends what this program has put around the router, and leaves simulators that it found as they were started.
func (r *runningRouter) close() {
	if r == nil {
		return
	}
	if r.options.Running.Simulators != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = remote.Restore(ctx, r.options.Running) // one that is gone needs it no more
	}
	r.stack.close()
}

// keep says how to reach a stack that is left up, and waits for the end of the command.
func (s *screen) keep(ctx context.Context, k run.Kept) {
	s.mu.Lock()
	text := fmt.Sprintf("\nkept: scenario %s failed; its stack is up until Ctrl-C\n", k.Scenario)
	if k.Err != nil {
		text += "  " + k.Err.Error() + "\n"
	}
	for _, v := range k.Failed {
		text += fmt.Sprintf("  %s %s: %s: %s\n", v.Kind, v.Requirement, v.Figure, v.Why)
	}
	for _, line := range k.About {
		text += "  " + line + "\n"
	}
	s.write([]byte(text))
	s.mu.Unlock()
	<-ctx.Done()
}
