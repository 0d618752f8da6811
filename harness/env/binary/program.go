package binary

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

// The files that are kept of a program.
const (
	LogFile   = "picker.log"     // of its first start (picker-2.log of its second): its command line, its end, and the first and last of what it printed
	CallsFile = "kube-calls.txt" // what it asked of the Kubernetes API
)

// Config is one start of a program.
type Config struct {
	Command    Command
	Document   string // configuration
	ServerPort int    // of every model server
	Endpoints  []Endpoint
	Objectives map[string]int
	Objects    []Objective // further ones, for the Kubernetes API alone
	SyncRedis  string      // where pickers tell each other of their load; "": they do not
	// StartLimit is how long it may take to become ready or to refuse its configuration. 0: 10 s (spec/requirements.md, "exit").
	StartLimit time.Duration
	// TLS: it serves ext_proc with TLS; its certificate is not looked at. Its health port is plaintext in any case.
	TLS bool
	// Grace is how long it may take to end after SIGTERM before it is killed, when nobody waits for it any more. 0: 1 s.
	Grace time.Duration
	// OnFile gets the files that are kept, at the end; nil: nobody.
	OnFile func(name string, content []byte)
}

// Program is a program that was started.
type Program struct {
	cfg     Config
	world   *world
	argv    []string
	process *process
	starts  int
	ports   struct{ grpc, health, metrics int } // 0: not used

	failed chan struct{}
	fail   sync.Once
	tasks  sync.WaitGroup
	once   sync.Once
	err    error // of Close
}

// Start brings a program up and waits until it is ready. *StartError tells of one that does not become so; nothing is left of it.
func Start(ctx context.Context, cfg Config) (*Program, error) {
	if cfg.StartLimit == 0 {
		cfg.StartLimit = 10 * time.Second
	}
	if cfg.Grace == 0 {
		cfg.Grace = time.Second
	}
	p := &Program{cfg: cfg, failed: make(chan struct{})}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Program) start(ctx context.Context) error {
	var err error
	if p.world, err = newWorld(p.cfg.Document, p.cfg.ServerPort); err != nil {
		return fmt.Errorf("surroundings of the picker: %w", err)
	}
	_, err = p.world.setEndpoints(p.cfg.Endpoints)
	if err = errors.Join(err, p.world.setObjectives(p.cfg.Objectives, p.cfg.Objects)); err != nil {
		return fmt.Errorf("surroundings of the picker: %w", err)
	}
	values := Values{Config: p.world.file("config.yaml"), PoolName: PoolName, PoolNamespace: namespace, Kubeconfig: p.world.file("kubeconfig"),
		EndpointsFile: p.world.file("endpoints.yaml"), ObjectivesFile: p.world.file("objectives.yaml"), SyncRedis: p.cfg.SyncRedis}
	for _, port := range []struct {
		name string
		to   *int
		text *string
	}{{"GRPCPort", &p.ports.grpc, &values.GRPCPort}, {"HealthPort", &p.ports.health, &values.HealthPort}, {"MetricsPort", &p.ports.metrics, &values.MetricsPort}} {
		if !p.cfg.Command.Uses(port.name) {
			continue
		}
		if *port.to, err = FreePort(); err != nil {
			return err
		}
		*port.text = strconv.Itoa(*port.to)
	}
	if p.argv, err = p.cfg.Command.Argv(values); err != nil {
		return err
	}
	return p.launch(ctx)
}

// launch starts the program and waits until it is ready and knows its surroundings.
func (p *Program) launch(ctx context.Context) error {
	started, err := run(p.argv, "KUBECONFIG="+p.world.file("kubeconfig"), "NAMESPACE="+namespace)
	if err != nil {
		return &StartError{Argv: p.argv, ExitCode: -1, Why: err.Error()}
	}
	p.process = started
	p.starts++
	p.tasks.Go(func() {
		<-started.ended
		if !started.asked.Load() {
			p.fail.Do(func() { close(p.failed) })
		}
	})
	if err := p.awaitReady(ctx); err != nil {
		return err
	}
	p.world.awaitWatches(ctx)
	return nil
}

// Restart starts the program again, on its ports and in its surroundings as they are now, after Shutdown.
func (p *Program) Restart(ctx context.Context) error {
	if p.process == nil || !p.process.asked.Load() {
		return errors.New("the picker was not shut down")
	}
	if err := p.end(); err != nil {
		return err
	}
	p.process = nil
	return p.launch(ctx)
}

// awaitReady waits until the program is ready, has ended, or has taken too long.
func (p *Program) awaitReady(outer context.Context) error {
	ctx, cancel := context.WithTimeout(outer, p.cfg.StartLimit)
	defer cancel()
	missing := "nobody has looked" // at the last look
	look := probe{grpc: p.ports.grpc, health: p.ports.health, tls: p.cfg.TLS}
	defer look.close()
	refused := func(why string) error {
		e := &StartError{Argv: p.process.argv, Ended: p.process.gone(), ExitCode: -1, Why: why}
		if e.Ended {
			var how string
			e.ExitCode, how = p.process.exit()
			e.Why = "it ended before it was ready: " + how
		}
		e.Output = p.process.out.last(4000)
		return e
	}
	for {
		if p.process.gone() {
			return refused("")
		}
		// A look takes the time it needs: one cut off by the limit would blame the program for what was only not awaited.
		ok, why := look.ready(outer)
		if !ok {
			missing = why
		}
		switch {
		case outer.Err() != nil:
			return context.Cause(outer)
		case ctx.Err() != nil:
			return refused(fmt.Sprintf("it was not ready within %s: %s", p.cfg.StartLimit, missing))
		case p.process.gone(): // somebody else may have answered on its ports
			return refused("")
		case ok:
			return nil
		}
		pause()
	}
}

// GRPCAddr is where ext_proc is served.
func (p *Program) GRPCAddr() string { return address(p.ports.grpc) }

// HealthAddr is where the health service is: on a port of its own where the command takes one, else with ext_proc.
func (p *Program) HealthAddr() string {
	if p.ports.health == 0 {
		return address(p.ports.grpc)
	}
	return address(p.ports.health)
}

// MetricsAddr is where the metrics page is served; "" if the command takes no port for it.
func (p *Program) MetricsAddr() string {
	if p.ports.metrics == 0 {
		return ""
	}
	return address(p.ports.metrics)
}

// SetEndpoints publishes the members of the pool and waits until every watch of them has been sent the change.
// It tells whether one that stays has changed its labels.
func (p *Program) SetEndpoints(ctx context.Context, list []Endpoint) (relabelled bool, err error) {
	relabelled, err = p.world.setEndpoints(list)
	return relabelled, errors.Join(err, p.delivered(ctx))
}

// SetObjectives publishes the objectives likewise.
func (p *Program) SetObjectives(ctx context.Context, objectives map[string]int, objects []Objective) error {
	return errors.Join(p.world.setObjectives(objectives, objects), p.delivered(ctx))
}

// UsesKube tells whether the program has asked the Kubernetes API for anything.
func (p *Program) UsesKube() bool { return p.world.used() }

// delivered waits for the watches; a program that does not read its own has to see for itself.
func (p *Program) delivered(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, watchLimit)
	defer cancel()
	_ = p.world.api.AwaitDelivered(limited)
	return ctx.Err()
}

// Failed is closed if the program ends without having been told to.
func (p *Program) Failed() <-chan struct{} { return p.failed }

// Failure says how it ended by itself.
func (p *Program) Failure() error {
	_, how := p.process.exit()
	return fmt.Errorf("the picker ended by itself: %s; it printed: %s", how, p.process.out.last(600))
}

// Shutdown tells the program to end and waits for it, until ctx ends.
func (p *Program) Shutdown(ctx context.Context) error {
	p.process.asked.Store(true)
	p.process.signal(syscall.SIGTERM)
	select {
	case <-p.process.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// portLimit is how long a port may stay taken after the last process of a program has been killed.
const portLimit = time.Second

// Close ends the program, kills what does not end, and takes its surroundings down. The error names what it kept or left behind. It is
// safe to call again.
func (p *Program) Close() error {
	p.once.Do(func() {
		if p.process != nil {
			p.err = p.end()
		}
		p.tasks.Wait()
		if p.world != nil {
			if p.cfg.OnFile != nil && p.world.api != nil {
				p.cfg.OnFile(CallsFile, []byte(p.world.calls()))
			}
			p.world.close()
		}
	})
	return p.err
}

// end ends the process and keeps its log; the error names what it kept or left behind.
func (p *Program) end() error {
	began := clock.NewReal()
	p.process.stop(p.cfg.Grace)
	took := began.Now()
	err := p.leftovers()
	p.keep(took)
	return err
}

// leftovers names processes that had left the program's group, and ports that are still taken.
func (p *Program) leftovers() error {
	var errs []error
	if len(p.process.strays) > 0 {
		errs = append(errs, fmt.Errorf("the picker left processes outside its group behind, which were killed: %s", strings.Join(p.process.strays, ", ")))
	}
	for _, port := range []int{p.ports.grpc, p.ports.health, p.ports.metrics} {
		if port != 0 && !awaitFree(port, portLimit) {
			errs = append(errs, fmt.Errorf("port %d of the picker is still taken after all its processes were killed", port))
		}
	}
	return errors.Join(errs...)
}

// keep hands over what is worth keeping.
func (p *Program) keep(took time.Duration) {
	if p.cfg.OnFile == nil {
		return
	}
	_, how := p.process.exit()
	var b strings.Builder
	fmt.Fprintf(&b, "argv: %s\nend: %s, %s after it was last told to end\n", strings.Join(p.process.argv, " "), how, took.Round(time.Millisecond))
	if p.process.killed {
		fmt.Fprintf(&b, "killed: it did not end within %s of SIGTERM\n", p.cfg.Grace)
	}
	fmt.Fprintf(&b, "\n%s", p.process.out.String())
	name := LogFile
	if p.starts > 1 {
		name = fmt.Sprintf("picker-%d.log", p.starts)
	}
	p.cfg.OnFile(name, []byte(b.String()))
}
