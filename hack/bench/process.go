package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server under measurement.
type process struct {
	cmd     *exec.Cmd
	addr    string // of ext_proc
	metrics string // URL of the metrics page; "" for none
	pool    string // path of the endpoints file
}

// detectors are the two ways to measure saturation that the figures are about.
const (
	concurrency = "plugins: [{type: concurrency-detector, parameters: {maxConcurrency: %d}}]"
	utilization = "plugins: [{type: utilization-detector, parameters: {queueDepthThreshold: %d}}]"
)

// startPicker starts a picker on loopback, with round-robin fairness and no limit of the queue. detector is one of the above, filled in.
func (b *bench) startPicker(ctx context.Context, detector string, pool []string) (*process, error) {
	kind := detector[strings.Index(detector, "type: ")+len("type: ") : strings.Index(detector, ", ")]
	doc := "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\n" + detector + "\nflowControl:\n" +
		"  saturationDetector: {pluginRef: " + kind + "}\n" +
		"  defaultPriorityBand: {maxRequests: 1000000, maxBytes: 100000000000, fairnessPolicyRef: round-robin-fairness-policy}\n"
	dir, err := os.MkdirTemp(b.dir, "picker")
	if err != nil {
		return nil, err
	}
	config, endpoints := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "endpoints.yaml")
	if err := os.WriteFile(config, []byte(doc), 0o600); err != nil {
		return nil, err
	}
	p := &process{pool: endpoints}
	if err := p.setPool(pool); err != nil {
		return nil, err
	}
	return p, p.start(ctx, b.bin, "picker", "--config-file", config, "--endpoints-file", endpoints,
		"--grpc-addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0")
}

// startCanned starts a server that is no picker.
func startCanned(ctx context.Context) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{}
	return p, p.start(ctx, self, "--canned")
}

// setPool makes the pool exactly these addresses; a picker sees it within its reload interval.
func (p *process) setPool(pool []string) error {
	var doc strings.Builder
	doc.WriteString("endpoints:\n")
	for i, address := range pool {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		fmt.Fprintf(&doc, "- {name: server-%d, address: %s, port: %q}\n", i, host, port)
	}
	next := p.pool + ".next" // a half-written file is never read
	if err := os.WriteFile(next, []byte(doc.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(next, p.pool)
}

var ready = regexp.MustCompile(`ext_proc ([\d.:]+)(?:.*metrics (\S+))?`)

// start runs a command until it says where it listens.
func (p *process) start(ctx context.Context, name string, args ...string) error {
	p.cmd = exec.CommandContext(ctx, name, args...)
	var log beginning
	p.cmd.Stderr = &log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if m := ready.FindStringSubmatch(lines.Text()); m != nil {
			p.addr, p.metrics = m[1], m[2]
			return nil
		}
	}
	p.stop()
	return fmt.Errorf("%s: ended before it listened: %s", strings.Join(p.cmd.Args, " "), log.text)
}

// beginning keeps the begin of what a process logs: why it does not start.
type beginning struct{ text []byte }

func (t *beginning) Write(p []byte) (int, error) {
	t.text = append(t.text, p[:min(len(p), 4096-len(t.text))]...)
	return len(p), nil
}

// stop ends the process at once.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
}

// usage is CPU time.
type usage struct{ user, system time.Duration }

func (u usage) total() time.Duration { return u.user + u.system }

func (u usage) since(before usage) usage {
	return usage{u.user - before.user, u.system - before.system}
}

// tick is the unit of CPU time in /proc, which Linux fixes for all programs.
const tick = 10 * time.Millisecond

// cpu is what the process has used so far, all its threads together (proc(5): utime and stime of /proc/PID/stat, in ticks).
func (p *process) cpu() (usage, error) {
	path := fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return usage{}, err
	}
	// The second field is a name in parentheses and may hold spaces; utime is the 14th field.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return usage{}, fmt.Errorf("%s: %d fields", path, len(fields))
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return usage{}, fmt.Errorf("%s: %w", path, err)
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return usage{}, fmt.Errorf("%s: %w", path, err)
	}
	return usage{time.Duration(user) * tick, time.Duration(system) * tick}, nil
}

// pause stops the process until resume; it uses no time meanwhile.
func (p *process) pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
