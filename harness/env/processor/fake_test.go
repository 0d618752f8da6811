package processor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

// The test program is also the processor that the tests start: with fakeMode set it is one of a few lines. The goroutine left out is
// started by the import of a library of the Pub/Sub client.
func TestMain(m *testing.M) {
	if mode := os.Getenv(fakeMode); mode != "" {
		os.Exit(fake(mode, os.Args[1], os.Args[2], os.Args[3], os.Args[4:]))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

const fakeMode = "WEIR_FAKE_PROCESSOR"

// fakeConfig is the transport document of the fake.
type fakeConfig struct{ Broker, Upstream string }

// fake is a processor: "serves" takes messages, sends them and stores results; "ends" ends at once and leaves another behind, which
// does nothing; "stays" does not end on SIGTERM.
func fake(mode, config, metricsPort, healthPort string, flags []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Printf("pid %d flags %q\n", os.Getpid(), flags)
	switch mode {
	case "ends":
		child := exec.Command(os.Args[0], os.Args[1:]...)
		child.Env = append(os.Environ(), fakeMode+"=idles")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it has left the group
		if err := child.Start(); err != nil {
			fmt.Println(err)
		}
		fmt.Printf("child %d\n", child.Process.Pid)
		return 7
	case "stays":
		ctx = context.Background()
	case "idles":
		select {}
	}
	for port, text := range map[string]string{healthPort: "fine", metricsPort: "# TYPE llm_d_async_up gauge\nllm_d_async_up 1\n"} {
		go func() {
			_ = http.ListenAndServe("127.0.0.1:"+port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
		}()
	}
	if mode == "serves" {
		work(ctx, config)
	}
	<-ctx.Done()
	return 0
}

func work(ctx context.Context, config string) {
	var c fakeConfig
	raw, err := os.ReadFile(config)
	if err != nil || json.Unmarshal(raw, &c) != nil {
		fmt.Println("no configuration:", config, err)
		return
	}
	broker := redis.NewClient(&redis.Options{Addr: c.Broker, Protocol: 2, DisableIdentity: true})
	for ctx.Err() == nil {
		popped, err := broker.ZPopMin(ctx, "q").Result()
		if err != nil || len(popped) == 0 {
			clock.Sleep(ctx, time.Millisecond)
			continue
		}
		var m struct {
			Data struct {
				ID      string          `json:"id"`
				Payload json.RawMessage `json:"payload"`
			} `json:"data"`
		}
		if err := json.Unmarshal([]byte(popped[0].Member.(string)), &m); err != nil {
			fmt.Println(err)
			continue
		}
		a, err := http.Post(c.Upstream, "application/json", bytes.NewReader(m.Data.Payload))
		if err != nil {
			fmt.Println(err)
			continue
		}
		a.Body.Close()
		broker.LPush(ctx, "results", fmt.Sprintf(`{"id":%q,"status_code":%d}`, m.Data.ID, a.StatusCode))
	}
}

// faked is a system of the fake.
func faked(t *testing.T) *System {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("'" + exe + "' {{.Config}} {{.MetricsPort}} {{.HealthPort}} {{.Flags}}")
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Command: c})
}

// as sets the fake up.
func as(mode string, flags ...string) *sut.AsyncSetup {
	return &sut.AsyncSetup{Transport: "none", Config: `{"broker":"$BROKER","upstream":"$UPSTREAM_a"}`, Flags: flags, Env: map[string]string{fakeMode: mode}}
}

// seen is the evidence of a script, with its files.
type seen struct {
	*evidence.Recorder
	mu    sync.Mutex
	files map[string]string
}

// File implements evidence.Sink.
func (s *seen) File(name string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = string(content)
}

// played plays a script, after which no file, process or goroutine is left.
func played(t *testing.T, s *System, steps ...sut.AsyncStep) (*seen, error) {
	t.Helper()
	there := goleak.IgnoreCurrent()
	t.Setenv("TMPDIR", t.TempDir())
	out := &seen{Recorder: evidence.NewRecorder("x"), files: map[string]string{}}
	err := s.Play(t.Context(), sut.Script{Scenario: "x", Async: steps}, out)
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
	goleak.VerifyNone(t, there)
	return out, err
}

// step finds what became of a step.
func (s *seen) step(t *testing.T, mark string) evidence.Step {
	t.Helper()
	run := s.Run()
	x, ok := run.StepByMark(mark)
	if !ok {
		t.Fatalf("no step %s", mark)
	}
	return x
}

// pids are the numbers behind a word in a log.
func pids(t *testing.T, log, word string) []int {
	t.Helper()
	var out []int
	for line := range strings.Lines(log) {
		var pid int
		if n, _ := fmt.Sscanf(line, word+" %d", &pid); n == 1 {
			out = append(out, pid)
		}
	}
	return out
}

// runs tells whether a process is there and has not ended: one that nobody has waited for yet runs no more.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}
