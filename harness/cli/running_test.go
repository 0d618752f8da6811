package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

// running is a command in another terminal.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	seen  []string
}

// background starts weir and leaves it running.
func background(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{t: t, cmd: exec.Command("weir", args...)}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd.Stderr = os.Stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.lines = bufio.NewScanner(out)
	t.Cleanup(func() { r.end() })
	return r
}

// until reads lines until one contains text, and gives that line.
func (r *running) until(text string) string {
	r.t.Helper()
	for r.lines.Scan() {
		r.seen = append(r.seen, r.lines.Text())
		if strings.Contains(r.lines.Text(), text) {
			return r.lines.Text()
		}
	}
	r.t.Fatalf("no line with %q in\n%s", text, strings.Join(r.seen, "\n"))
	return ""
}

// end interrupts the command and gives its exit status.
func (r *running) end() int {
	if r.cmd.ProcessState == nil {
		_ = r.cmd.Process.Signal(os.Interrupt)
		_, _ = io.Copy(io.Discard, r.cmdRest())
		_ = r.cmd.Wait()
	}
	return r.cmd.ProcessState.ExitCode()
}

// cmdRest drains what the scanner has not read, so that the command is not stopped by a full pipe.
func (r *running) cmdRest() io.Reader {
	var b bytes.Buffer
	for r.lines.Scan() {
		r.seen = append(r.seen, r.lines.Text())
	}
	return &b
}

// certify runs weir certify to its end.
func certify(t *testing.T, args ...string) (status int, out string) {
	t.Helper()
	cmd := exec.Command("weir", append([]string{"certify", "--seed", "7", "--no-color", "--out", filepath.Join(t.TempDir(), "out")}, args...)...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// up starts weir up and gives its descriptor.
func up(t *testing.T, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "up.yaml")
	background(t, append([]string{"up", "--addr", "127.0.0.1:0", "--write-sut", file}, args...)...).until("Ctrl-C")
	return file
}

// The descriptor in the README is one, and its two commands are those that up prints.
func TestDescriptorOfTheReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "    project: my-router\n")
	block, _, end := strings.Cut(block, "\n\n")
	if !ok || !end {
		t.Fatal("no descriptor in the README")
	}
	file := filepath.Join(t.TempDir(), "sut.yaml")
	if err := os.WriteFile(file, []byte("project: my-router\n"+strings.ReplaceAll("\n"+block, "\n    ", "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := sut.ReadDescriptor(file)
	if err != nil || d.Running == nil || d.Running.Configure.Limit != 30*time.Second || d.Running.Address("sim-0") != "10.0.0.7:8001" {
		t.Errorf("%+v %v", d.Running, err)
	}
	for _, command := range []string{"weir up --write-sut up.yaml", "weir certify --url http://127.0.0.1:8080 --sut up.yaml"} {
		if !strings.Contains(string(text), "\n    "+command) {
			t.Errorf("the README does not show %q", command)
		}
	}
}

// descriptor is one as a test may change it.
type descriptor map[string]any

func read(t *testing.T, file string) descriptor {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := map[string]any{}
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d descriptor) running() map[string]any { return part(d, "running") }

func part(m map[string]any, name string) map[string]any {
	p, ok := m[name].(map[string]any)
	if !ok {
		p = map[string]any{}
		m[name] = p
	}
	return p
}

func (d descriptor) write(t *testing.T) string {
	t.Helper()
	text, err := yaml.Marshal(map[string]any(d))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sut.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// expect compares what a command came to.
func expect(t *testing.T, says string, status, want int, out string, lines ...string) {
	t.Helper()
	if status != want {
		t.Errorf("%s: status %d, want %d:\n%s", says, status, want, out)
		return
	}
	for _, l := range lines {
		if unwanted, ok := strings.CutPrefix(l, "! "); ok {
			if strings.Contains(out, unwanted) {
				t.Errorf("%s: %q is in\n%s", says, unwanted, out)
			}
		} else if !strings.Contains(out, l) {
			t.Errorf("%s: no %q in\n%s", says, l, out)
		}
	}
}

// Two terminals, as the README shows them: weir up in one, weir certify --url in the other.
func TestCertifyURLAgainstUp(t *testing.T) {
	t.Parallel()
	file := up(t)
	gateway := read(t, file).running()["gateway"].(string)
	status, out := certify(t, "--url", gateway, "--sut", file, "--focus", "^(INV-01|FC-PRI-02|FC-CFG-03|FC-PROTO-01|FC-CAN-01|FC-REF-17|FC-CLS-10)$")
	expect(t, "judged as in its own process", status, 0, out, "pass            INV-01", "pass            FC-PRI-02", "pass            FC-CFG-03", "pass            FC-CAN-01",
		"pass            FC-REF-17", "not-applicable  FC-PROTO-01", "not-applicable  FC-CLS-10", "weir/weir up")
}

// The clocks of the simulators are part of the evidence, and the verdicts come again from it.
func TestBundleOfAnotherProcess(t *testing.T) {
	t.Parallel()
	file := up(t)
	dir := filepath.Join(t.TempDir(), "bundle")
	cmd := exec.Command("weir", "certify", "--seed", "7", "--sut", file, "--focus", "^FC-PRI-02$", "--out", dir)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	var m evidence.Manifest
	text, err := os.ReadFile(filepath.Join(dir, evidence.ManifestFile))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil || m.Environment != "url" || m.SkewBoundNs <= 0 {
		t.Errorf("environment %q, skew bound %d: %v", m.Environment, m.SkewBoundNs, err)
	}
	for _, f := range []string{"clocks.txt", "hooks.log", "config.yaml"} {
		if _, err := os.Stat(filepath.Join(dir, "env", "pri-late-high", f)); err != nil {
			t.Error(err)
		}
	}
	if text, err := exec.Command("weir", "judge", dir).CombinedOutput(); err != nil || !strings.Contains(string(text), "the same verdicts") {
		t.Errorf("judge: %v\n%s", err, text)
	}
}

func TestRouterWithOneConfiguration(t *testing.T) {
	t.Parallel()
	file := up(t, "--configuration", "fair-round-robin")
	status, out := certify(t, "--sut", file, "--focus", "^(INV-01|FC-FAIR-01|FC-PRI-02)$")
	expect(t, "what has it is judged behind a probe of its own, what has not is not", status, 0, out, "pass            INV-01", "pass            FC-FAIR-01", "not-applicable  FC-PRI-02")

	d := read(t, file)
	d.running()["configurations"] = []string{"fair-default"} // it has another one
	status, out = certify(t, "--sut", d.write(t), "--focus", "^(INV-01|FC-FAIR-07)$")
	expect(t, "a descriptor that is wrong about the policies", status, 1, out, "pass            INV-01", "fail            FC-FAIR-07")

	d.running()["configurations"] = []string{"pri-strict", "fair-default"}
	status, out = certify(t, "--sut", d.write(t))
	expect(t, "two configurations at a time", status, 2, out, "a router has one at a time")
	d.running()["configurations"] = nil
	status, out = certify(t, "--sut", d.write(t))
	expect(t, "nobody knows its configuration", status, 2, out, "nobody says which configuration the router has")
}

// A limit that is not the configured one stops the run before anything is claimed behind it.
func TestProbeGoesFirst(t *testing.T) {
	t.Parallel()
	d := read(t, up(t, "--configuration", "fair-round-robin")) // lets one run at a time
	d.running()["configurations"] = []string{"activation"}     // would let three
	status, out := certify(t, "--sut", d.write(t), "--focus", "^(INV-01|INV-02|INV-03)$")
	expect(t, "the limit is another one", status, 1, out, "fail            INV-01", "expected exactly 3 in flight at the model servers, saw 1", "! pass ")

	d = read(t, up(t))
	own := part(d.running(), "configure")["command"].(string)
	part(d.running(), "configure")["command"] = `sh -c 'sed -i s/maxConcurrency:.*/maxConcurrency:\ 2/ "$0"; exec "$@"' {{.Config}} ` + own
	status, out = certify(t, "--sut", d.write(t), "--focus", "^(INV-01|FC-PRI-02|FC-CFG-03)$")
	expect(t, "nothing behind the gate is played then", status, 1, out, "fail            INV-01", "inconclusive    FC-PRI-02", "not played", "pass            FC-CFG-03")
}

// proxy is a gateway in front of another one, with faults of its own.
func proxy(t *testing.T, to string, change func(*httputil.ReverseProxy)) string {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	p := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, FlushInterval: -1}
	change(p)
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s.URL
}

// again sends a request up to n times more while the answer is an error of a server.
type again struct{ n int }

func (a again) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	for i := 0; ; i++ {
		r.Body = io.NopCloser(bytes.NewReader(body))
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil || resp.StatusCode < 500 || i == a.n {
			return resp, err
		}
		resp.Body.Close()
	}
}

// slow begins each request late.
type slow struct{ by time.Duration }

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	if !clock.Sleep(r.Context(), s.by) {
		return nil, r.Context().Err()
	}
	return http.DefaultTransport.RoundTrip(r)
}

func TestGatewaysThatMeddle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says   string
		change func(*httputil.ReverseProxy)
		focus  string
		status int
		lines  []string
	}{
		{"one that adds latency: nothing arrives in time, so nothing is claimed", func(p *httputil.ReverseProxy) { p.Transport = slow{1500 * time.Millisecond} },
			"^(INV-01|FC-PRI-02)$", 3, []string{"inconclusive    INV-01", "no request came from its client to a model server in less than 1.5", "inconclusive    FC-PRI-02", "the activation probe (INV-01) ended as inconclusive", "! pass "}},
		{"one that retries by itself is seen at the model servers", func(p *httputil.ReverseProxy) { p.Transport = again{1} }, "^(INV-01|INV-07|FC-REF-17)$", 1,
			[]string{"fail            INV-07", "was sent once and arrived more than once"}},
		{"one that rewrites statuses", func(p *httputil.ReverseProxy) {
			p.ModifyResponse = func(r *http.Response) error {
				if r.StatusCode == http.StatusTooManyRequests {
					r.StatusCode = http.StatusServiceUnavailable
				}
				return nil
			}
		}, "^(INV-01|FC-REF-02)$", 1, []string{"fail            FC-REF-02", "expected 429"}},
		{"one that takes our headers away", func(p *httputil.ReverseProxy) {
			next := p.Rewrite
			p.Rewrite = func(r *httputil.ProxyRequest) {
				next(r)
				r.Out.Header.Del("x-weir-id")
				r.Out.Header.Del("x-weir-scenario")
			}
		}, "^INV-01$", 2, []string{"error           INV-01", "the router takes headers away"}},
	} {
		t.Run(strings.ReplaceAll(c.says, " ", "-"), func(t *testing.T) {
			t.Parallel()
			d := read(t, up(t))
			d.running()["gateway"] = proxy(t, d.running()["gateway"].(string), c.change)
			status, out := certify(t, "--sut", d.write(t), "--focus", c.focus)
			expect(t, c.says, status, c.status, out, c.lines...)
		})
	}
}

func TestAddressesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	file := up(t, "--configuration", "activation")
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(secure.Close)
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who are you", http.StatusUnauthorized) }))
	t.Cleanup(guarded.Close)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"api":"weir.sim-admin/v9"}`) }))
	t.Cleanup(other.Close)
	nothing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(nothing.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	plain := strings.Replace(secure.URL, "https:", "http:", 1)
	for _, c := range []struct {
		says   string
		change func(r map[string]any)
		want   string
	}{
		{"a gateway that is not there", func(r map[string]any) { r["gateway"] = gone.URL }, "connection refused"},
		{"no URL", func(r map[string]any) { r["gateway"] = "localhost" }, "running.gateway: want http://host:port"},
		{"TLS where none is expected", func(r map[string]any) { r["gateway"] = plain }, "write https://"},
		{"no TLS where it is expected", func(r map[string]any) { r["gateway"] = strings.Replace(nothing.URL, "http:", "https:", 1) }, "write http://"},
		{"a certificate of nobody", func(r map[string]any) { r["metrics"] = secure.URL }, "certificate is not trusted"},
		{"metrics with TLS", func(r map[string]any) { r["metrics"] = plain }, "metrics page: " + plain + ": status 400: it speaks TLS"},
		{"metrics behind authentication", func(r map[string]any) { r["metrics"] = guarded.URL }, "status 401: it asks for authentication"},
		{"metrics that are none", func(r map[string]any) { r["metrics"] = other.URL }, "no page of metrics"},
		{"another admin API", func(r map[string]any) { part(r, "simulators")["sim-0"] = other.URL }, `its admin API is "weir.sim-admin/v9"`},
		{"no admin API", func(r map[string]any) { part(r, "simulators")["sim-0"] = nothing.URL }, "no simulator of ours"},
		{"a placeholder that is none", func(r map[string]any) { part(r, "configure")["command"] = "x {{.Conf}}" }, "running.configure.command: command"},
	} {
		d := read(t, file)
		c.change(d.running())
		status, out := certify(t, "--sut", d.write(t), "--focus", "^INV-01$")
		expect(t, c.says, status, 2, out, c.want)
	}
}

func TestConfigureCommandsThatFail(t *testing.T) {
	t.Parallel()
	file := up(t)
	own := read(t, file).running()["configure"].(map[string]any)["command"].(string)
	for _, c := range []struct {
		says, command string
		focus         string
		status        int
		lines         []string
	}{
		{"with a status", `sh -c 'echo "no licence" >&2; exit 3'`, "^(INV-01|FC-PRI-02)$", 2, []string{"error           INV-01", "configure command: sh -c", "no licence", "it ended with exit status 3",
			"inconclusive    FC-PRI-02"}},
		{"never ends, and neither does what it started", `sh -c 'sleep 600 & sleep 600'`, "^INV-01$", 2, []string{"error           INV-01", "it has not ended within 1s"}},
		{"is not there", "./no-such-command", "^INV-01$", 2, []string{"error           INV-01", "no such file"}},
		{"only for one scenario: the others are judged", `sh -c 'test "$0" != pri-late-high || exit 4; exec "$@"' {{.Scenario}} ` + own, "^(INV-01|FC-PRI-02|FC-ORD-01)$", 2,
			[]string{"pass            INV-01", "error           FC-PRI-02", "it ended with exit status 4", "pass            FC-ORD-01"}},
		{"says that its router cannot do it", `sh -c 'test "$0" != pri-late-high || { echo "one band only"; exit 77; }; exec "$@"' {{.Scenario}} ` + own, "^(INV-01|FC-PRI-02)$", 0,
			[]string{"pass            INV-01", "not-applicable  FC-PRI-02"}},
	} {
		d := read(t, file)
		part(d.running(), "configure")["command"] = c.command
		part(d.running(), "configure")["limit"] = "1s"
		if c.status == 0 || strings.Contains(c.command, own) {
			delete(part(d.running(), "configure"), "limit")
		}
		status, out := certify(t, "--sut", d.write(t), "--focus", c.focus)
		expect(t, c.says, status, c.status, out, c.lines...)
	}
}

// Where the way to a clock is long, what hangs on the order of instants is not judged.
func TestClocksThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	d := read(t, up(t))
	sims := part(d.running(), "simulators")
	addresses := part(d.running(), "addresses")
	for name, u := range sims {
		addresses[name] = strings.TrimPrefix(u.(string), "http://")
		sims[name] = proxy(t, u.(string), func(p *httputil.ReverseProxy) { p.Transport = slow{15 * time.Millisecond} })
	}
	status, out := certify(t, "--sut", d.write(t), "--focus", "^(INV-01|FC-PRI-02)$")
	expect(t, "15 ms away", status, 3, out, "inconclusive    INV-01", "can be compared to within", "! pass ")
}

// A simulator that is set up by somebody else in the middle, or ends, is an error of the scenario.
func TestSimulatorIsLost(t *testing.T) {
	t.Parallel()
	d := read(t, up(t))
	sims := part(d.running(), "simulators")
	addresses := part(d.running(), "addresses")
	for name, u := range sims {
		var asked atomic.Int64
		addresses[name] = strings.TrimPrefix(u.(string), "http://")
		sims[name] = proxy(t, u.(string), func(p *httputil.ReverseProxy) {
			p.ModifyResponse = func(r *http.Response) error {
				if r.Request.URL.Path == "/admin/changes" && asked.Add(1) > 8 {
					return errors.New("gone")
				}
				return nil
			}
		})
	}
	status, out := certify(t, "--sut", d.write(t), "--focus", "^INV-01$")
	expect(t, "no more answers", status, 2, out, "error           INV-01", "simulator sim-0: /admin/changes", "status 502")
}

func TestWithoutSimulators(t *testing.T) {
	t.Parallel()
	d := read(t, up(t))
	delete(d.running(), "simulators")
	status, out := certify(t, "--sut", d.write(t), "--focus", "^(INV-01|FC-PRI-02|FC-CFG-03|FC-PROTO-11)$")
	expect(t, "only what needs no look at a model server", status, 0, out, "pass            FC-CFG-03", "not-applicable  INV-01", "not-applicable  FC-PRI-02", "not-applicable  FC-PROTO-11")
}

func TestPickerThatRuns(t *testing.T) {
	t.Parallel()
	d := read(t, up(t, "--configuration", "fair-default"))
	r := d.running()
	addr := r["extProc"].(string)
	delete(r, "gateway")
	status, out := certify(t, "--epp-addr", addr, "--sut", d.write(t), "--focus", "^(INV-01|FC-FAIR-07|FC-PROTO-11)$")
	expect(t, "behind a gateway of ours", status, 0, out, "pass            INV-01", "pass            FC-FAIR-07", "pass            FC-PROTO-11")
	status, out = certify(t, "--epp-addr", addr, "--url", "http://127.0.0.1:1", "--sut", d.write(t))
	expect(t, "one of them", status, 2, out, "exclude each other")
}

// A stack that failed stays up until the command is told to end.
func TestKeep(t *testing.T) {
	t.Parallel()
	c := background(t, "certify", "--seed", "7", "--profile", "llm-d-router-0.9", "--reference-profile", "llm-d-router-2026-09", "--focus", "^FC-REF-03$", "--keep",
		"--out", filepath.Join(t.TempDir(), "out"))
	c.until("kept: scenario")
	c.until("fail FC-REF-03")
	_, base, _ := strings.Cut(c.until("gateway"), "gateway")
	c.until("curl")
	resp, err := http.Post(strings.TrimSpace(base)+"/v1/completions", "application/json", strings.NewReader(`{`))
	if err != nil {
		t.Fatalf("the gateway of a kept stack: %v", err)
	}
	resp.Body.Close()
	if status := c.end(); status != 130 {
		t.Errorf("status %d, want 130:\n%s", status, strings.Join(c.seen, "\n"))
	}
}
