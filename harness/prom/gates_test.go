package prom

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/asyncproc"
	"github.com/llm-weir/weir/reference/redisq"
)

// gated is a processor whose queues sat, bud and qry have the three PromQL gates, with the server they ask, which scrapes a page that the
// test writes, and the processor. Everything speaks over sockets.
type gated struct {
	t       *testing.T
	ctx     context.Context
	prom    *Server
	page    *page
	client  *redis.Client
	arrived chan string // the queue of each attempt that was answered 200
}

const gateQueues = `{"url":"redis://%s","poll_interval_ms":5,"queues":[
 {"queue_name":"sat","igw_base_url":"%[2]s","request_path_url":"/sat","gate_type":"prometheus-saturation","gate_params":{"pool":"p","fallback":"1"}},
 {"queue_name":"bud","igw_base_url":"%[2]s","request_path_url":"/bud","gate_type":"prometheus-budget","gate_params":{"pool":"p","max_concurrency":"10"}},
 {"queue_name":"qry","igw_base_url":"%[2]s","request_path_url":"/qry","gate_type":"prometheus-query","gate_params":{"query":"1 - max(load) / 4"}},
 {"queue_name":"shed","igw_base_url":"%[2]s","request_path_url":"/shed"}]}`

func startGated(t *testing.T) *gated {
	g := &gated{t: t, page: &page{status: 200, kind: "text/plain; version=0.0.4"}, arrived: make(chan string, 100)}
	var cancel context.CancelFunc
	g.ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	web := httptest.NewServer(g.page)
	t.Cleanup(web.Close)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		if r.URL.Path == "/shed" {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, "{}")
		g.arrived <- strings.TrimPrefix(r.URL.Path, "/")
	}))
	t.Cleanup(upstream.Close)
	g.prom = serve(t, Config{Targets: []Target{{Job: "pool", URL: web.URL}}})
	broker := miniredis.RunT(t)
	g.client = redis.NewClient(&redis.Options{Addr: broker.Addr()})
	t.Cleanup(func() { g.client.Close() })
	f := asyncconfig.Flags{Concurrency: 4, Transport: "redis-sortedset", Durability: "at-least-once", DrainTimeout: time.Second, GateWaitTimeout: time.Minute,
		RequestTimeout: time.Minute, BacklogInterval: time.Second, PrometheusURL: g.prom.URL(), TransportConfig: fmt.Sprintf(gateQueues, broker.Addr(), upstream.URL)}
	c, err := asyncconfig.NewLoader(f, nil, nil).Load()
	if err != nil {
		t.Fatal(err)
	}
	p, err := asyncproc.Serve(asyncproc.Options{Config: c, Seed: 1, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Listen: func(int) (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if err := g.prom.Add(Target{Job: "processor", URL: p.MetricsAddr()}); err != nil {
		t.Fatal(err)
	}
	return g
}

// show lets the server see a page.
func (g *gated) show(page string) {
	g.t.Helper()
	g.page.set(200, page)
	if err := g.prom.ScrapeNow(g.ctx); err != nil {
		g.t.Fatal(err)
	}
}

// await scrapes until a condition on the processor's metrics holds; a condition is a query that finds something.
func (g *gated) await(says, condition string) {
	g.t.Helper()
	for ask(g.t, g.prom, condition) == "" {
		if err := g.prom.ScrapeNow(g.ctx); err != nil {
			g.t.Fatalf("%s: %v; budgets\n%s", says, err, ask(g.t, g.prom, "llm_d_async_async_dispatch_budget"))
		}
	}
}

func (g *gated) budget(queue string, want float64) {
	g.t.Helper()
	g.await(fmt.Sprintf("budget of %s = %v", queue, want), fmt.Sprintf("abs(llm_d_async_async_dispatch_budget{queue_id=%q} - %v) < 1e-9", queue, want))
}

func (g *gated) submit(queue string) {
	g.t.Helper()
	now := time.Now()
	if _, err := redisq.Submit(g.ctx, g.client, queue, "", async.Request{ID: fmt.Sprint(queue, now.UnixNano()), Deadline: now.Unix() + 600, Payload: []byte(`{}`)}, now); err != nil {
		g.t.Fatal(err)
	}
}

// arrivals waits for one attempt of each queue.
func (g *gated) arrivals() {
	g.t.Helper()
	seen := map[string]int{}
	for range 3 {
		select {
		case q := <-g.arrived:
			seen[q]++
		case <-g.ctx.Done():
			g.t.Fatalf("only %v arrived", seen)
		}
	}
	if len(seen) != 3 {
		g.t.Errorf("arrived: %v", seen)
	}
}

// TestGates: the three gates open, close and open again by what the server scraped (AP-GATE-09 to AP-GATE-29), and the guide's examples find
// something on what the processor itself shows (AP-MET-23).
func TestGates(t *testing.T) {
	if testing.Short() {
		t.Skip("real sockets and real time")
	}
	g := startGated(t)
	const open = "llm_d_epp_flow_control_pool_saturation{inference_pool=\"p\"} 0.3\nllm_d_epp_ready_endpoints{name=\"p\"} 2\n" +
		"llm_d_epp_flow_control_queue_size{inference_pool=\"p\"} 4\nload 1\n"
	const closed = "llm_d_epp_flow_control_pool_saturation{inference_pool=\"p\"} 0.95\nllm_d_epp_ready_endpoints{name=\"p\"} 2\n" +
		"llm_d_epp_flow_control_queue_size{inference_pool=\"p\"} 19\nload 4\n"
	for range 2 { // open, closed, open again
		g.show(open)
		g.budget("sat", 0.5)  // (1 - 0.3) - (1 - 0.8)
		g.budget("bud", 0.75) // (1 - 4 / 20) - 0.05
		g.budget("qry", 0.75) // 1 - 1 / 4
		for _, q := range []string{"sat", "bud", "qry"} {
			g.submit(q)
		}
		g.arrivals()
		g.show(closed)
		for _, q := range []string{"sat", "bud", "qry"} {
			g.budget(q, 0)
		}
		at := "sum by (queue_id) (llm_d_async_async_gate_decisions_total{reason=\"gate_closed\",queue_id=~\"sat|bud|qry\"})"
		before := map[string]string{}
		for _, q := range []string{"sat", "bud", "qry"} {
			before[q] = strings.TrimPrefix(ask(t, g.prom, fmt.Sprintf("sum(llm_d_async_async_gate_decisions_total{reason=\"gate_closed\",queue_id=%q})", q)), "{} ")
			g.submit(q)
		}
		for q, n := range before {
			g.await(q+" refuses", fmt.Sprintf("(%s >= %s + 3) and on(queue_id) llm_d_async_async_dispatch_budget{queue_id=%q}", at, n, q))
		}
		select {
		case q := <-g.arrived:
			t.Errorf("%s passed a closed gate", q)
		default:
		}
		g.show(open)
		g.arrivals()
	}
	g.documented()
}

// documented are the guide's examples over what was scraped.
func (g *gated) documented() {
	g.submit("shed")
	g.await("a shed request was tried again", `llm_d_async_async_request_retries_total{queue_id="shed"} > 0`)
	g.submit("sat") // a second answer, so that there is a rate
	g.await("latencies", `rate(llm_d_async_async_inference_latency_time_millis_count{queue_id="sat"}[5m]) > 0`)
	for _, query := range []string{
		`rate(llm_d_async_async_successful_requests_total[5m]) / rate(llm_d_async_async_request_total[5m])`,
		`rate(llm_d_async_async_shedded_requests_total[5m]) > 0`,
		`rate(llm_d_async_async_request_retries_total[5m]) / rate(llm_d_async_async_request_total[5m])`,
		`histogram_quantile(0.95, sum by (queue_name, le) (rate(llm_d_async_async_inference_latency_time_millis_bucket[5m]))) > 0`,
		`histogram_quantile(0.95, sum by (queue_name, le) (rate(llm_d_async_async_queue_residence_time_millis_bucket[5m]))) > 0`,
		`llm_d_async_async_dispatch_budget`, `llm_d_async_async_gate_metric_value`, `llm_d_async_async_gate_metric_threshold`,
		`llm_d_async_async_gate_metric_value - on(queue_id, queue_name, pool_name) llm_d_async_async_gate_metric_threshold`,
		`sum by (pool_name) (rate(llm_d_async_async_gate_decisions_total{reason="gate_closed"}[5m])) > 0`,
		// As written the example lacks ignoring(): a scrape labels the right side with job and instance.
		`sum by (pool_name) (llm_d_async_async_inflight_requests) / ignoring(job, instance) llm_d_async_async_pool_worker_limit`,
	} {
		if ask(g.t, g.prom, query) == "" {
			g.t.Errorf("nothing found: %s", query)
		}
	}
	if got := ask(g.t, g.prom, `sum by (pool_name) (llm_d_async_async_inflight_requests) / llm_d_async_async_pool_worker_limit`); got != "" {
		g.t.Errorf("the example for utilization finds %s: drop the note in hack/decisions", got)
	}
}

// TestBudgetCascade: the budget gate takes the first source that has a sample, under the names of both generations, and closes when there
// is none (AP-GATE-16 to AP-GATE-22).
func TestBudgetCascade(t *testing.T) {
	if testing.Short() {
		t.Skip("real sockets and real time")
	}
	g := startGated(t)
	const (
		queue   = "inference_extension_flow_control_queue_size{inference_pool=\"p\"} 4\ninference_extension_flow_control_queue_size{inference_pool=\"other\"} 99\n"
		ready   = "inference_pool_ready_pods{name=\"p\"} 2\n"
		twice   = "inference_pool_ready_pods{name=\"p\",replica=\"0\"} 2\ninference_pool_ready_pods{name=\"p\",replica=\"1\"} 2\n"
		queue2  = "llm_d_epp_flow_control_queue_size{inference_pool=\"p\"} 6\n"
		ready2  = "llm_d_epp_ready_endpoints{name=\"p\",replica=\"0\"} 2\nllm_d_epp_ready_endpoints{name=\"p\",replica=\"1\"} 2\n"
		perPod  = "inference_pool_per_pod_queue_size{name=\"p\",model_server_pod=\"a\"} 2\ninference_pool_per_pod_queue_size{name=\"p\",model_server_pod=\"b\"} 4\n"
		perPod2 = "llm_d_epp_per_endpoint_queue_size{name=\"p\",model_server_endpoint=\"a\"} 4\n"
		running = "vllm:num_requests_running{inference_pool=\"p\",pod=\"a\"} 9\nvllm:num_requests_running{inference_pool=\"p\",pod=\"b\"} 1\n"
	)
	for _, c := range []struct {
		says, page string
		want       float64 // budget: D - 0.05
	}{
		{"queue of the older generation: 1 - 4 / 20", queue + ready + queue2 + ready2 + perPod + running, 0.75},
		{"two replicas make the older form an error, so the newer one counts: 1 - 6 / 20", queue + twice + queue2 + ready2, 0.65},
		{"without a queue the mean of the pods: 1 - 3 / 10", ready + ready2 + perPod + perPod2 + running, 0.65},
		{"the same of the newer generation: 1 - 4 / 10", ready2 + perPod2 + running, 0.55},
		{"what runs, where nothing waits: 1 - 10 / 20", ready + running, 0.45},
		{"the same of the newer generation", ready2 + running, 0.45},
		{"running requests that do not say their pool, and no other source: closed", ready + "vllm:num_requests_running{pod=\"a\"} 1\n", 0},
		{"the first source again", queue + ready, 0.75},
		{"no pods are no capacity: -Inf is no reading, closed", queue + "inference_pool_ready_pods{name=\"p\"} 0\n", 0},
	} {
		g.show(c.page)
		g.budget("bud", c.want)
		t.Log(c.says)
	}
	g.await("no reading", `llm_d_async_async_gate_metric_source_available{queue_id="bud"} == 0`)
	g.show(queue + ready)
	g.budget("bud", 0.75)
	g.await("a reading", `llm_d_async_async_gate_metric_source_available{queue_id="bud"} == 1`)
	g.page.set(http.StatusServiceUnavailable, "")
	if err := g.prom.ScrapeNow(g.ctx); err == nil {
		t.Error("a page with status 503 was read")
	}
	// What a target that is down showed is no longer a reading.
	for ask(t, g.prom, `llm_d_async_async_dispatch_budget{queue_id="bud"} == 0`) == "" && g.ctx.Err() == nil {
		if err := g.prom.ScrapeNow(g.ctx); err == nil {
			t.Fatal("a page with status 503 was read")
		}
	}
}
