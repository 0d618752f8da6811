package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/llm-weir/weir/harness/cli"
)

// TestProcessorEndToEnd: requests in, results out, once each, over real sockets and the embedded broker; SIGTERM ends it with 0.
func TestProcessorEndToEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("real sockets and real time")
	}
	broker := miniredis.RunT(t)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }))
	defer gateway.Close()
	url := "redis://" + broker.Addr()
	weir, err := exec.LookPath("weir") // testscript.Main has put it there
	if err != nil {
		t.Skip("weir is not on PATH: run by testscript.Main only")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	doc := fmt.Sprintf(`{"url":%q,"poll_interval_ms":20,"queues":[{"queue_name":"batch","igw_base_url":%q}]}`, url, gateway.URL)
	p := exec.CommandContext(ctx, weir, "processor", "--transport", "redis-sortedset", "--transport-config", doc, "--metrics-endpoint-auth=false",
		"--metrics-port", "0", "--health-port", "0")
	var log bytes.Buffer
	p.Stdout, p.Stderr = &log, &log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if status := cli.Run(args, &out, &errs); status != 0 {
			t.Fatalf("%v: status %d\n%s", args, status, errs.String())
		}
		return out.String()
	}
	submitted := run("enqueue", "--redis-url", url, "--queue", "batch", "-n", "100", "--id-prefix", "x")
	results := run("results", "--redis-url", url, "--follow", "-n", "100")
	for i := range 100 {
		id := fmt.Sprintf("x-%d", i)
		if n := len(regexp.MustCompile(`"id":"`+id+`","status_code":200,"payload":"fine"`).FindAllString(results, -1)); n != 1 || !strings.Contains(submitted, id+" ") {
			t.Errorf("%s has %d results", id, n)
		}
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
	if more := run("results", "--redis-url", url); more != "" {
		t.Errorf("a result too many: %s", more)
	}
}

// TestProcessorEmptyFiles: a file whose name is empty is none, as the guide has it for transforms (AP-CLI-06).
func TestProcessorEmptyFiles(t *testing.T) {
	var out, errs bytes.Buffer
	args := []string{"processor", "--transport", "redis-sortedset", "--check-config",
		"--transport-config", `{"url":"redis://127.0.0.1:1","queues":[{"queue_name":"q","igw_base_url":"http://127.0.0.1:1"}]}`}
	for _, flag := range []string{"transport-config-file", "pool-config-file", "request-merge-policy-config-file", "transform-config-file", "tls-ca-cert", "tls-cert", "tls-key"} {
		args = append(args, "--"+flag, "")
	}
	if status := cli.Run(args, &out, &errs); status != 0 {
		t.Errorf("status %d\n%s", status, errs.String())
	}
}
