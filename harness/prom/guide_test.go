package prom

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-weir/weir/reference/asyncconfig"
)

// The recording begins here and has a sample every step; it is asked about a little later, so that no range ends on a sample: servers
// before 3.0 count one that lies exactly at the left end.
var recorded = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

const (
	step   = 30 * time.Second
	length = time.Hour
)

var asked = recorded.Add(length + 7*time.Second)

// TestGuide evaluates every PromQL example of the guide over recorded samples (AP-MET-23).
func TestGuide(t *testing.T) {
	s := serve(t, Config{})
	record(t, s, openMetrics(t))
	evaluate(t, s.URL())
}

// TestGuideOnPackagedPrometheus is the same table over the same samples, on the server that distributions ship.
func TestGuideOnPackagedPrometheus(t *testing.T) {
	evaluate(t, packagedPrometheus(t, openMetrics(t)))
}

// evaluate runs testdata/guide.txt against a server.
func evaluate(t *testing.T, url string) {
	c, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		t.Fatal(err)
	}
	client := v1.NewAPI(c)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	datadriven.RunTest(t, "testdata/guide.txt", func(t *testing.T, d *datadriven.TestData) string {
		var v model.Value
		var err error
		switch d.Cmd {
		case "eval":
			v, _, _, err = client.Query(ctx, d.Input, asked)
		case "range":
			v, _, _, err = client.QueryRange(ctx, d.Input, v1.Range{Start: asked.Add(-2 * time.Minute), End: asked, Step: time.Minute})
		default:
			d.Fatalf(t, "unknown command %s", d.Cmd)
		}
		if err != nil {
			var e *v1.Error
			if !errors.As(err, &e) {
				d.Fatalf(t, "%v", err)
			}
			return fmt.Sprintf("error: %s\n", e.Type)
		}
		return text(v)
	})
}

// text is a result, a series a line, in the order of their labels; nine digits hide the last bits, in which versions differ.
func text(v model.Value) string {
	var lines []string
	number := func(v model.SampleValue) string { return strconv.FormatFloat(float64(v), 'g', 9, 64) }
	switch v := v.(type) {
	case model.Vector:
		for _, s := range v {
			lines = append(lines, metric(s.Metric)+" "+number(s.Value))
		}
	case model.Matrix:
		for _, s := range v {
			line := metric(s.Metric)
			for _, p := range s.Values {
				line += " " + number(p.Value)
			}
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return "(empty)\n"
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func metric(m model.Metric) string {
	if len(m) == 0 {
		return "{}"
	}
	return m.String()
}

// TestGatesAskWhatTheTableHolds: the queries in guide.txt are those that gates send.
func TestGatesAskWhatTheTableHolds(t *testing.T) {
	table, err := os.ReadFile("testdata/guide.txt")
	if err != nil {
		t.Fatal(err)
	}
	gates := ""
	for i, g := range []string{`"gate_type":"prometheus-saturation","gate_params":{"pool":"llama"}`, `"gate_type":"prometheus-saturation","gate_params":{"pool":"qwen"}`,
		`"gate_type":"prometheus-budget","gate_params":{"pool":"llama"}`,
		`"gate_type":"prometheus-query","gate_params":{"query":"1 - (sum(rate(http_requests_total{job=\"inference\"}[5m])) / 100)"}`} {
		if i > 0 {
			gates += ","
		}
		gates += fmt.Sprintf(`{"queue_name":"q%d","igw_base_url":"http://gateway",%s}`, i, g)
	}
	f := asyncconfig.Flags{Concurrency: 1, Transport: "redis-sortedset", Durability: "at-least-once", DrainTimeout: time.Second, PrometheusURL: "http://prometheus",
		TransportConfig: `{"url":"redis://broker:6379","queues":[` + gates + `]}`}
	c, err := asyncconfig.NewLoader(f, nil, nil).Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Sources) != 2+2+6+1 {
		t.Errorf("%d sources, want 11", len(c.Sources))
	}
	for _, src := range c.Sources {
		if !strings.Contains(string(table), "eval\n"+src.Query+"\n----\n") {
			t.Errorf("not in the table: %s", src.Query)
		}
	}
}

// openMetrics is the recording as a page whose samples carry their instants.
func openMetrics(t *testing.T) []byte {
	t.Helper()
	doc, err := os.ReadFile("testdata/recording.txt")
	if err != nil {
		t.Fatal(err)
	}
	p := parser.NewParser(parser.Options{})
	var out bytes.Buffer
	for i, line := range strings.Split(string(doc), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		l, values, err := p.ParseSeriesDesc(line)
		if err != nil || len(values) != int(length/step)+1 {
			t.Fatalf("recording.txt:%d: %d values, %v", i+1, len(values), err)
		}
		var pairs []string
		l.Range(func(l labels.Label) {
			if l.Name != labels.MetricName {
				pairs = append(pairs, fmt.Sprintf("%s=%q", l.Name, l.Value))
			}
		})
		for j, v := range values {
			fmt.Fprintf(&out, "%s{%s} %v %d\n", l.Get(labels.MetricName), strings.Join(pairs, ","), v.Value, recorded.Add(time.Duration(j)*step).Unix())
		}
	}
	out.WriteString("# EOF\n")
	return out.Bytes()
}

// record puts a page straight into the samples of a server, without labels of a target.
func record(t *testing.T, s *Server, page []byte) {
	t.Helper()
	p, err := textparse.New(page, "application/openmetrics-text; version=1.0.0", nil, textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	app := s.db.Appender(context.Background())
	n, _, err := (&scraper{s: s, series: map[string]*series{}}).appendPage(app, p, 0)
	if err := errors.Join(err, app.Commit()); err != nil || n == 0 {
		t.Fatalf("%d samples, %v", n, err)
	}
}

// packagedPrometheus starts the prometheus on PATH over the samples of a page and returns its URL.
func packagedPrometheus(t *testing.T, page []byte) string {
	t.Helper()
	server, err := exec.LookPath("prometheus")
	tool, err2 := exec.LookPath("promtool")
	if err != nil || err2 != nil {
		t.Skip("no prometheus and promtool on PATH: the table ran against the embedded one only")
	}
	dir := t.TempDir()
	file, config, blocks := filepath.Join(dir, "page"), filepath.Join(dir, "prometheus.yml"), filepath.Join(dir, "blocks")
	if err := errors.Join(os.WriteFile(file, page, 0o600), os.WriteFile(config, []byte("global: {evaluation_interval: 1m}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "tsdb", "create-blocks-from", "openmetrics", file, blocks).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	cmd := exec.Command(server, "--config.file", config, "--storage.tsdb.path", blocks, "--storage.tsdb.retention.time", "100y", "--web.listen-address", addr)
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan bool, 1), make(chan struct{})
	var log bytes.Buffer
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(errs); lines.Scan(); {
			fmt.Fprintln(&log, lines.Text())
			if strings.Contains(lines.Text(), "Server is ready to receive web requests") {
				ready <- true
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		cmd.Wait()
	})
	select {
	case <-ready:
	case <-ended:
		t.Fatalf("%s did not start:\n%s", server, log.String())
	}
	return "http://" + addr
}
