package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/harness/cli"
)

// TestDrain: what is in flight when SIGTERM comes ends well within --drain-timeout, and is broken off without it.
func TestDrain(t *testing.T) {
	if testing.Short() {
		t.Skip("real sockets and real time")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		says  string
		args  []string
		whole bool
	}{
		{"with a drain", []string{"--drain-timeout", "30s"}, true},
		{"without one", nil, false},
	} {
		s := start(ctx, t, append([]string{"sim-vllm", "--addr", "127.0.0.1:0"}, c.args...)...)
		const tokens = `{"model":"m","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.address("sim-vllm")+"/v1/chat/completions", strings.NewReader(tokens))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body := bufio.NewReader(res.Body)
		if _, err := body.ReadString('\n'); err != nil { // the first token is there, the last one far away
			t.Fatalf("%s: %v", c.says, err)
		}
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(body)
		res.Body.Close()
		if whole := strings.Contains(string(rest), "data: [DONE]"); whole != c.whole {
			t.Errorf("%s: whole is %v: ...%q", c.says, whole, rest[max(0, len(rest)-100):])
		}
		for s.lines.Scan() { // Wait closes the pipe
		}
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", c.says, err, s.errs.String())
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestRedis: the broker for tests answers, and is not among the commands that are shown.
func TestRedis(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := start(ctx, t, "redis", "--addr", "127.0.0.1:0")
	var at string
	for s.lines.Scan() {
		if _, rest, ok := strings.Cut(s.lines.Text(), "redis://"); ok {
			at, _, _ = strings.Cut(rest, ",")
			break
		}
	}
	c := redis.NewClient(&redis.Options{Addr: at})
	if err := c.ZAdd(ctx, "queue", redis.Z{Score: 1, Member: "x"}).Err(); err != nil {
		t.Error(err)
	}
	c.Close()
	s.end()
	var out bytes.Buffer
	if status := cli.Run([]string{"--help"}, &out, &out); status != 0 || !strings.Contains(out.String(), "processor") || strings.Contains(out.String(), "redis") {
		t.Errorf("help, status %d, must not show it:\n%s", status, out.String())
	}
}
