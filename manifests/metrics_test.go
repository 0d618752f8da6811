package manifests_test

import (
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/manifests"
	"github.com/llm-weir/weir/reference/asyncproc"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/sim-vllm/presets"
	"github.com/llm-weir/weir/sim-vllm/server"
)

// published are the metrics that there are, with their labels. A histogram is there under its base name.
type published map[string][]string

var (
	description = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	pageSeries  = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}`)
	labelName   = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="`)
)

// targetLabels come with every scrape.
var targetLabels = []string{"job", "instance", "namespace", "pod"}

// everything is what the picker, the processor and vLLM publish.
func everything(t *testing.T) published {
	t.Helper()
	contract, err := epconfig.ContractNamed("")
	if err != nil {
		t.Fatal(err)
	}
	all := published{"up": nil}
	for _, g := range []prometheus.Gatherer{epp.NewMetrics("weir", epconfig.Default(contract)).Gatherer(), asyncproc.NewMetrics().Gatherer()} {
		found := make(chan *prometheus.Desc)
		go func() {
			defer close(found)
			g.(*prometheus.Registry).Describe(found)
		}()
		for d := range found {
			m := description.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("a description that cannot be read: %s", d)
			}
			all[m[1]] = nil
			if m[2] != "" {
				all[m[1]] = strings.Split(m[2], ",")
			}
		}
	}
	engine, err := presets.Get("h100-llama3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	sim, err := server.New(server.Config{Name: "sim", Engine: engine})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	page := httptest.NewRecorder()
	sim.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for _, m := range pageSeries.FindAllStringSubmatch(page.Body.String(), -1) {
		if strings.HasPrefix(m[1], "vllm:") {
			all[m[1]] = []string{"inference_pool"} // of the target
			for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
				all[m[1]] = append(all[m[1]], l[1])
			}
		}
	}
	return all
}

// histogram tells a histogram of ours by the unit that ends its name.
func histogram(name string) bool {
	for _, unit := range []string{"_seconds", "_millis", "_sizes", "request_size_bytes", "response_size_bytes", "request_input_tokens", "request_output_tokens", "request_cached_tokens"} {
		if strings.HasSuffix(name, unit) {
			return !strings.HasSuffix(name, "timestamp_seconds")
		}
	}
	return false
}

// labelsOf gives the labels of a series by its name, and whether it exists.
func (all published) labelsOf(series string) ([]string, bool) {
	if own, ok := all[series]; ok && !histogram(series) {
		return own, true
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		base, ok := strings.CutSuffix(series, part)
		own, there := all[base]
		if !ok || !there || !histogram(base) {
			continue
		}
		if part == "_bucket" {
			own = append(slices.Clone(own), "le")
		}
		return own, true
	}
	return nil, false
}

var grafana = strings.NewReplacer("$__rate_interval", "5m", "$pool", "weir", "$queue", "batch")

// ask finds what is wrong with a query: names, labels, and values that are known to be all there are.
func (all published) ask(query string) (p problems) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(grafana.Replace(query))
	if err != nil {
		return problems{err.Error()}
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			own, ok := all.labelsOf(n.Name)
			p.check(ok, "nobody publishes %s", n.Name)
			for _, m := range n.LabelMatchers {
				p.check(!ok || m.Name == labels.MetricName || slices.Contains(append(own, targetLabels...), m.Name), "%s has no label %s", n.Name, m.Name)
				if m.Name == "outcome" && strings.HasSuffix(n.Name, wire.MetricRequestsTotal) && m.Type == labels.MatchEqual {
					_, err := wire.ParseOutcome(m.Value)
					p.check(err == nil, "%s: %v", n.Name, err)
				}
			}
			// A counter that is not turned into a rate shows how long the process has run.
			if strings.HasSuffix(n.Name, "_total") || strings.HasSuffix(n.Name, "_bucket") && !strings.Contains(n.Name, "proximity") {
				p.check(strings.Contains(query, "rate(") || strings.Contains(query, "increase("), "%s is a counter", n.Name)
			}
		case *parser.AggregateExpr:
			if n.Without {
				return nil
			}
			parser.Inspect(n.Expr, func(inner parser.Node, _ []parser.Node) error {
				if v, ok := inner.(*parser.VectorSelector); ok {
					own, _ := all.labelsOf(v.Name)
					for _, l := range n.Grouping {
						p.check(slices.Contains(append(own, targetLabels...), l), "%s has no label %s to group by", v.Name, l)
					}
				}
				return nil
			})
		}
		return nil
	})
	return p
}

// shown finds names in braces that a query does not leave: those of a legend, or of an alert's texts.
func shown(query, text string, form *regexp.Regexp) (p problems) {
	for _, m := range form.FindAllStringSubmatch(text, -1) {
		by := regexp.MustCompile(`by \(([^)]*)\)`).FindStringSubmatch(query)
		p.check(by == nil && m[1] == "instance" || by != nil && regexp.MustCompile(`\b`+m[1]+`\b`).MatchString(by[1]), "%q shows %s, which the query %q does not keep", text, m[1], query)
	}
	return p
}

var (
	legendName = regexp.MustCompile(`\{\{(\w+)\}\}`)
	alertName  = regexp.MustCompile(`\$labels\.(\w+)`)
)

func TestAlerts(t *testing.T) {
	all := everything(t)
	rules := build(t, "monitoring").named("PrometheusRule", "weir")
	content, err := yaml.Marshal(field(rules, "spec"))
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(content, false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.Default())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	seen := map[string]bool{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			found := all.ask(r.Expr)
			found.check(r.Labels["severity"] == "warning" || r.Labels["severity"] == "critical", "severity %q", r.Labels["severity"])
			found.check(!seen[r.Alert], "there twice")
			found.check(r.Annotations["summary"] != "" && r.Annotations["description"] != "", "says nothing")
			for _, a := range r.Annotations {
				found = append(found, shown(r.Expr, a, alertName)...)
			}
			if seen[r.Alert] = true; len(found) > 0 {
				t.Errorf("%s:\n%s", r.Alert, found)
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d alerts", len(seen))
	}
}

// dashboard is what is looked at of a Grafana dashboard.
type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Panels []struct {
		ID          int
		Title, Type string
		GridPos     struct{ X, Y, W, H int }
		Datasource  struct{ Type, UID string }
		Targets     []struct{ Expr, LegendFormat, RefID string }
		FieldConfig struct{ Defaults struct{ Unit string } }
		Description string
	}
}

// overlapping tells whether two panels lie on each other.
func (d dashboard) overlapping() bool {
	for i, a := range d.Panels {
		for _, b := range d.Panels[:i] {
			g, h := a.GridPos, b.GridPos
			if g.X < h.X+h.W && h.X < g.X+g.W && g.Y < h.Y+h.H && h.Y < g.Y+g.H {
				return true
			}
		}
	}
	return false
}

func TestDashboards(t *testing.T) {
	all := everything(t)
	files, err := fs.Glob(manifests.Files, "monitoring/dashboards/*.json")
	if err != nil || len(files) != 5 {
		t.Fatalf("%d dashboards, %v", len(files), err)
	}
	deployed := build(t, "monitoring")
	for _, f := range files {
		content, err := manifests.Files.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(content, &d); err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		topic := strings.TrimSuffix(path.Base(f), ".json")
		cm := deployed.named("ConfigMap", "weir-dashboard-"+topic)
		var found problems
		found.check(d.UID == "weir-"+topic, "uid %q", d.UID)
		found.check(text(cm, "data", path.Base(f)) == string(content) && text(cm, "metadata", "labels", "grafana_dashboard") == "1", "is not deployed")
		found.check(len(d.Panels) > 4 && !d.overlapping(), "%d panels, overlapping %v", len(d.Panels), d.overlapping())
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(text(v.Query, "query"))
			own, ok := all.labelsOf(m[1])
			found.check(ok && slices.Contains(own, m[2]), "variable %s: %s", v.Name, m[0])
		}
		for _, p := range d.Panels {
			found.check(p.Title != "" && p.FieldConfig.Defaults.Unit != "" && p.Datasource.UID == "${datasource}" && len(p.Targets) > 0, "panel %d %q is not whole", p.ID, p.Title)
			for _, q := range p.Targets {
				for _, complaint := range append(all.ask(q.Expr), shown(q.Expr, q.LegendFormat, legendName)...) {
					found.check(false, "%s: %s", p.Title, complaint)
				}
			}
		}
		if len(found) > 0 {
			t.Errorf("%s:\n%s", f, found)
		}
	}
}

// TestQueriesCanFail: the check sees names, labels and counters that are wrong.
func TestQueriesCanFail(t *testing.T) {
	all := everything(t)
	for query, want := range map[string]string{
		"llm_d_epp_flow_control_queue_sizes":                                    "nobody publishes",
		"llm_d_epp_request_ttft_seconds":                                        "nobody publishes",
		"llm_d_epp_flow_control_queue_size_bucket":                              "nobody publishes",
		"llm_d_async_async_no_such_total":                                       "nobody publishes",
		"vllm:gpu_cache_usage_perc":                                             "nobody publishes",
		`llm_d_epp_flow_control_queue_size{pool="x"}`:                           "has no label pool",
		`sum by (fairness) (llm_d_epp_flow_control_queue_size)`:                 "no label fairness to group by",
		`rate(llm_d_epp_flow_control_requests_total{outcome="EvictedTtl"}[5m])`: "unknown outcome",
		"llm_d_epp_flow_control_requests_total":                                 "is a counter",
		"sum(":                                                                  "parse error",
		`histogram_quantile(0.9, sum by (tier, le) (rate(llm_d_epp_request_ttft_seconds_bucket[1m])))`: "no label tier",
	} {
		if got := all.ask(query); !strings.Contains(got.String(), want) {
			t.Errorf("%s: want a complaint with %q, got %q", query, want, got)
		}
	}
	for _, query := range []string{
		`sum by (fairness_id, namespace) (llm_d_epp_flow_control_queue_size{inference_pool="$pool",job="picker"})`,
		`histogram_quantile(0.9, sum by (priority, le) (rate(llm_d_epp_request_ttft_seconds_bucket[$__rate_interval])))`,
		`vllm:num_requests_running{inference_pool="$pool"}`, `up == 0`,
	} {
		if got := all.ask(query); len(got) > 0 {
			t.Errorf("%s: %s", query, got)
		}
	}
	if got := shown("sum by (a, b) (x)", "{{a}} {{c}}", legendName); len(got) != 1 || !strings.Contains(got[0], "shows c") {
		t.Errorf("legend: %s", got)
	}
}
