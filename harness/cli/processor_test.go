package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
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

// TestProcessorMetricsAccess: by default the API that KUBECONFIG names decides who sees the metrics (AP-HEALTH-02).
func TestProcessorMetricsAccess(t *testing.T) {
	if testing.Short() {
		t.Skip("real sockets and real time")
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q map[string]any
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		switch spec := q["spec"].(map[string]any); r.URL.Path {
		case "/apis/authentication.k8s.io/v1/tokenreviews":
			q["status"] = map[string]any{"authenticated": spec["token"] != "stale", "user": map[string]any{"username": spec["token"]}}
		case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
			q["status"] = map[string]any{"allowed": spec["user"] == "good"}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(q)
	}))
	defer api.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: \"" + api.URL + "\"}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	broker := miniredis.RunT(t)
	p := background(t, "processor", "--transport", "redis-sortedset", "--metrics-port", "0", "--health-port", "0", "-v", "0",
		"--transport-config", fmt.Sprintf(`{"url":"redis://%s","queues":[{"queue_name":"q","igw_base_url":"http://127.0.0.1:1"}]}`, broker.Addr()))
	port := regexp.MustCompile(`metrics http://[^/]*(:\d+)/`).FindStringSubmatch(p.until("processor ready"))[1]
	for header, want := range map[string]int{"": 401, "Bearer stale": 401, "Bearer poor": 403, "Bearer good": 200} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+port+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", header)
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != want || strings.Contains(string(body), "llm_d_async_") != (want == 200) {
			t.Errorf("%q: %d, want %d: %.200s", header, res.StatusCode, want, body)
		}
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
