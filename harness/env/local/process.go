package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/picker"
)

// startLimit is how long a process may take to come up or to refuse its configuration (spec/requirements.md, "exit").
const startLimit = 10 * time.Second

// alphaFlag lets plugins of alpha stability in (FC-CFG-14).
const alphaFlag = "--allow-experimental-plugins"

// Ready is the line a picker process prints when its ports are open.
const Ready = "picker ready"

// TryStart implements sut.Stage.
func (st *stage) TryStart(ctx context.Context, name, doc string, stable bool) evidence.Process {
	began := st.Clock.Now()
	var p evidence.Process
	switch {
	case st.sys.opts.Command != nil:
		p = st.tryProgram(ctx, name, doc, stable)
	case len(st.sys.opts.PickerCommand) == 0:
		p = st.startHere(doc, stable)
	default:
		p = st.startProcess(ctx, doc, stable)
	}
	p.Case, p.Duration = name, int64(st.Clock.Now()-began)
	if len(p.Text) > 4096 {
		p.Text = p.Text[:4096]
	}
	return p
}

// startHere loads and serves the document in this process.
func (st *stage) startHere(doc string, stable bool) evidence.Process {
	cfg, err := st.sys.opts.Tamper.Load(doc, st.sys.opts.Contract)
	if err == nil && stable {
		err = cfg.Stable()
	}
	if err == nil {
		var m *picker.Picker
		if m, err = picker.New(cfg.Picker); err == nil {
			var s *epp.Server
			s, err = epp.Serve(epp.Options{Wiring: epp.DefaultWiring(m, st.sys.opts.Contract, cfg.SessionHeaders...), Config: cfg, PoolName: "start", GRPCAddr: loopback,
				HealthAddr: loopback, MetricsAddr: loopback, Logger: slog.New(slog.DiscardHandler)})
			if err == nil {
				s.Close()
			}
		}
	}
	if err != nil {
		return evidence.Process{ExitCode: 2, Text: err.Error()}
	}
	return evidence.Process{Started: true}
}

// output collects what a process prints and tells when a line of it has come.
type output struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	seen chan struct{}
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buf.Len() < 64<<10 {
		o.buf.Write(b)
	}
	if bytes.Contains(o.buf.Bytes(), []byte(Ready)) && o.seen != nil {
		close(o.seen)
		o.seen = nil
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// startProcess starts a picker with the document and waits until it is ready or has ended.
func (st *stage) startProcess(ctx context.Context, doc string, stable bool) evidence.Process {
	dir, err := os.MkdirTemp("", "weir-start-")
	if err != nil {
		return evidence.Process{ExitCode: -1, Text: err.Error()}
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
		return evidence.Process{ExitCode: -1, Text: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	argv := append(slices.Clone(st.sys.opts.PickerCommand), "--config-file", file, "--contract", st.sys.opts.Contract.Name,
		"--grpc-addr", loopback, "--health-addr", loopback, "--metrics-addr", loopback)
	if !stable {
		argv = append(argv, alphaFlag)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=", "KUBERNETES_SERVICE_HOST=") // no cluster has a say in whether a document is refused
	ready := make(chan struct{})
	out := &output{seen: ready}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return evidence.Process{ExitCode: -1, Text: fmt.Sprintf("%s: %v", strings.Join(argv, " "), err)}
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		close(ended)
	}()
	select {
	case <-ready:
		cancel()
		for range ended { // killed, as it was asked to
			continue
		}
		return evidence.Process{Started: true, Text: out.String()}
	case err := <-ended:
		p := evidence.Process{ExitCode: 0, Text: out.String()}
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			p.ExitCode, p.Text = -1, "neither ready nor ended within "+startLimit.String()+": "+out.String()
		case errors.As(err, &exit):
			p.ExitCode = exit.ExitCode()
		case err != nil:
			p.ExitCode, p.Text = -1, err.Error()
		}
		return p
	}
}
