package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// started is a long-running command; line waits for a word of its output.
type started struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	errs  bytes.Buffer
}

func start(ctx context.Context, t *testing.T, args ...string) *started {
	t.Helper()
	weir, err := exec.LookPath("weir") // testscript.Main has put it there
	if err != nil {
		t.Skip("weir is not on PATH: run by testscript.Main only")
	}
	s := &started{t: t, cmd: exec.CommandContext(ctx, weir, args...)}
	s.cmd.Stderr = &s.errs
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.lines = bufio.NewScanner(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// address is the HTTP address in the first line with the words.
func (s *started) address(words string) string {
	s.t.Helper()
	for s.lines.Scan() {
		if _, rest, ok := strings.Cut(s.lines.Text(), "http://"); ok && strings.Contains(s.lines.Text(), words) {
			host, _, _ := strings.Cut(rest, "/")
			return "http://" + host
		}
	}
	s.t.Fatalf("no line with %q\n%s", words, s.errs.String())
	return ""
}

// end sends SIGTERM, after which the command must end well.
func (s *started) end() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	for s.lines.Scan() { // Wait closes the pipe
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("%v\n%s", err, s.errs.String())
	}
}

// found asks a Prometheus until a query finds n series.
func found(ctx context.Context, t *testing.T, address, query string, n int) {
	t.Helper()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/api/v1/query?query="+url.QueryEscape(query), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		var a struct{ Data struct{ Result []any } }
		err = json.NewDecoder(res.Body).Decode(&a)
		res.Body.Close()
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		if len(a.Data.Result) == n {
			return
		}
	}
}

// TestUpAsync: "up" with a gate that asks its own Prometheus, which scrapes all of it; a second Prometheus beside it; SIGTERM ends both.
func TestUpAsync(t *testing.T) {
	if testing.Short() {
		t.Skip("real sockets and real time")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	up := start(ctx, t, "up", "--async", "--addr", "127.0.0.1:0", "--redis-addr", "127.0.0.1:0", "--prometheus-addr", "127.0.0.1:0",
		"--gate-type", "prometheus-budget", "--gate-params", `{"pool":"up"}`)
	own := up.address("prometheus")
	metrics := up.address("processor metrics")
	found(ctx, t, own, "up == 1", 4) // picker, two model servers, processor
	found(ctx, t, own, `llm_d_async_async_gate_metric_source_available{queue_id="batch"} == 1`, 1)
	found(ctx, t, own, `abs(llm_d_async_async_dispatch_budget - 0.95) < 1e-9`, 1)
	beside := start(ctx, t, "prometheus", "--addr", "127.0.0.1:0", "--interval", "50ms", "--target", "ap="+metrics+",where=here")
	found(ctx, t, beside.address("prometheus ready"), `llm_d_async_async_pool_worker_limit{job="ap",where="here"}`, 1)
	beside.end()
	up.end()
}
