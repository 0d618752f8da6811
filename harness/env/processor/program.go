package processor

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

// startLimit is how long a processor may take to become ready, or to end where it must.
const startLimit = 10 * time.Second

// stopGrace is how long a processor gets to end after the scenario, before it is killed.
const stopGrace = 300 * time.Millisecond

// textLimit bounds what a process record keeps of the output, in bytes.
const textLimit = 4 << 10

// program is one processor: its folder and ports stay over an end and a return.
type program struct {
	name            string
	dir             string
	metrics, health int
	setup           sut.AsyncSetup
	run             *binary.Started // nil before the first start
	logs            []string        // of earlier runs
	stopped         bool            // by SIGSTOP
	printed         int             // how much when a file was last written
}

// kubeconfig leads nowhere; some processors want one even where they never ask it.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: none, user: {}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
current-context: none
`

// program finds a processor by its name, or makes it.
func (r *rig) program(name string) (*program, error) {
	if name == "" {
		name = "p"
	}
	if p := r.programs[name]; p != nil {
		return p, nil
	}
	p := &program{name: name, dir: filepath.Join(r.dir, "processor-"+name)}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if p.metrics, err = binary.FreePort(); err != nil {
		return nil, err
	}
	if p.health, err = binary.FreePort(); err != nil {
		return nil, err
	}
	r.programs[name] = p
	return p, nil
}

// launch starts a processor; it is not waited for.
func (r *rig) launch(ctx context.Context, p *program, s sut.AsyncSetup) error {
	if p.run != nil {
		p.end() // one that did not end when it should have does not run beside the next one
		p.logs = append(p.logs, p.run.Output())
		p.run = nil
	}
	p.setup = s
	for name, text := range s.Files {
		if err := r.file(ctx, p, name, text); err != nil {
			return err
		}
	}
	argv, err := r.argv(ctx, p, s)
	if err != nil {
		return err
	}
	path := filepath.Join(p.dir, "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		return err
	}
	env := []string{"KUBECONFIG=" + path, "REDIS_URL=", "OTEL_EXPORTER_OTLP_ENDPOINT=", "PUBSUB_EMULATOR_HOST="}
	for k, v := range s.Env {
		if v, err = r.expand(ctx, p, v); err != nil {
			return err
		}
		env = append(env, k+"="+v)
	}
	p.run, err = binary.Spawn(argv, env...)
	p.logs = append(p.logs, "$ "+strings.Join(argv, " "))
	return err
}

// file writes a file of a processor's folder; whoever reads it meanwhile sees the old one or the new one.
func (r *rig) file(ctx context.Context, p *program, name, text string) error {
	text, err := r.expand(ctx, p, text)
	if err != nil {
		return err
	}
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// left marks a word that is left out, here the one in whose place further flags come.
const (
	left = "\x00"
	here = "\x01"
)

// argv is the command line of a processor under a setup.
func (r *rig) argv(ctx context.Context, p *program, s sut.AsyncSetup) ([]string, error) {
	var flags []string
	switch s.Transport {
	case "none":
	case "":
		flags = append(flags, "--transport", "redis-sortedset")
	default:
		flags = append(flags, "--transport", s.Transport)
	}
	config := left
	if s.Config != "" {
		text, err := r.expand(ctx, p, s.Config)
		if err != nil {
			return nil, err
		}
		if s.Inline {
			flags = append(flags, "--transport-config", text)
		}
		config = filepath.Join(p.dir, "transport.json")
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return nil, err
		}
		r.out.File(p.name+"-transport.json", []byte(text))
		if s.Inline && !contains(s.Flags, "--transport-config-file") {
			config = left
		}
	}
	more, err := r.expandAll(ctx, p, s.Flags)
	if err != nil {
		return nil, err
	}
	if contains(more, "--transport-config-file") {
		config = left
	}
	flags = append(flags, more...)
	words, err := r.opts.Command.Fill(map[string]string{"Config": config, "MetricsPort": fmt.Sprint(p.metrics), "HealthPort": fmt.Sprint(p.health), "Flags": here})
	if err != nil {
		return nil, err
	}
	return assemble(words, flags, s.Without), nil
}

func contains(words []string, flag string) bool {
	for _, w := range words {
		if w == flag || strings.HasPrefix(w, flag+"=") {
			return true
		}
	}
	return false
}

// assemble puts flags in their place, or at the end, and leaves out what is marked as left out and the flags of without.
func assemble(words, flags, without []string) []string {
	var out []string
	placed := false
	for i := 0; i < len(words); i++ {
		w := words[i]
		name, _, joined := strings.Cut(w, "=")
		drop := false
		for _, f := range without {
			drop = drop || name == f
		}
		switch {
		case w == here:
			out = append(out, flags...)
			placed = true
		case drop && !joined && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") && words[i+1] != here:
			i++
		case drop:
		case strings.Contains(w, left):
			if n := len(out); !joined && n > 0 && strings.HasPrefix(out[n-1], "-") && !strings.Contains(out[n-1], "=") {
				out = out[:n-1]
			}
		default:
			out = append(out, w)
		}
	}
	if !placed {
		out = append(out, flags...)
	}
	return out
}

// state says what the health port answers: "ready", "alive" (it answers, but is not ready), "none".
func (p *program) state(ctx context.Context) string {
	if status(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz", p.health)) == http.StatusOK {
		return "ready"
	}
	if status(ctx, fmt.Sprintf("http://127.0.0.1:%d/healthz", p.health)) == http.StatusOK {
		return "alive"
	}
	return "none"
}

func status(ctx context.Context, url string) int {
	code, _, err := get(ctx, url)
	if err != nil {
		return 0
	}
	return code
}

func get(ctx context.Context, url string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, "", err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(io.LimitReader(a.Body, 16<<20))
	return a.StatusCode, string(body), err
}

func (p *program) gone() bool {
	if p.run == nil {
		return true
	}
	select {
	case <-p.run.Ended():
		return true
	default:
		return false
	}
}

// running tells whether any processor runs.
func (r *rig) running() bool {
	for _, p := range r.programs {
		if !p.gone() {
			return true
		}
	}
	return false
}

// signal sends a signal by its name.
func (p *program) signal(name string) error {
	sig, ok := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}[name]
	if !ok || p.run == nil {
		return fmt.Errorf("signal %q to processor %s: there is no such signal, or it was not started", name, p.name)
	}
	p.stopped = name == "STOP"
	p.run.Signal(sig)
	return nil
}

func (p *program) output() string {
	logs := p.logs
	if p.run != nil {
		logs = append(logs[:len(logs):len(logs)], p.run.Output())
	}
	return strings.Join(logs, "\n")
}

// says gives the first line with one of some words, in any case, that was printed since a file was last written; "" if there is none.
func (p *program) says(words []string) string {
	all := p.output()
	for line := range strings.Lines(all[min(p.printed, len(all)):]) {
		for _, w := range words {
			if strings.Contains(strings.ToLower(line), w) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

// record is how a processor started or ended.
func (p *program) record(name string, started bool, took time.Duration) evidence.Process {
	out := evidence.Process{Case: name, Started: started, ExitCode: -1, Duration: int64(took)}
	if p.run == nil {
		return out
	}
	if p.gone() {
		code, how := p.run.Exit()
		out.ExitCode = code
		out.Text = how + "\n"
	}
	text := p.run.Output()
	if len(text) > textLimit {
		text = text[:textLimit/2] + "\n...\n" + text[len(text)-textLimit/2:]
	}
	out.Text = strings.ToValidUTF8(out.Text+text, "?")
	return out
}

// end stops a processor for good, and what it started: that may run on where it has ended itself.
func (p *program) end() {
	if p.run == nil {
		return
	}
	if p.stopped {
		p.run.Signal(syscall.SIGCONT)
		p.stopped = false
	}
	p.run.Stop(stopGrace)
}

// try starts a processor of its own for one trial, waits until it is ready or has ended, and ends it.
func (r *rig) try(ctx context.Context, t sut.AsyncTrial, p *program) (evidence.Process, error) {
	begin := r.clock.Now()
	if err := r.launch(ctx, p, t.Setup); err != nil {
		return evidence.Process{}, err
	}
	started := false
	r.await(ctx, startLimit, func() bool {
		if p.gone() {
			return true
		}
		started = p.state(ctx) == "ready"
		return started
	})
	rec := p.record(t.Case, started, r.clock.Now()-begin)
	p.end()
	return rec, nil
}

// pause is between two looks.
func pause(ctx context.Context) { clock.Sleep(ctx, look) }
