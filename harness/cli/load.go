package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sort"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/stats"
	"github.com/llm-weir/weir/loadgen/openai"
	"github.com/llm-weir/weir/loadgen/plan"
	"github.com/llm-weir/weir/loadgen/runner"
	"github.com/llm-weir/weir/loadgen/workload"
)

type loadCmd struct {
	Workload string        `arg:"" type:"path" help:"Workload YAML."`
	URL      string        `help:"Base URL of the target; default: http://127.0.0.1:8080, in a cluster the gateway's Service."`
	Model    string        `default:"m" help:"Model name of the requests."`
	Seed     uint64        `help:"Seed of arrivals and lengths; 0 draws one."`
	Out      string        `type:"path" help:"File of the per-request records (NDJSON); in a cluster the folder of the evidence bundle."`
	Vegeta   string        `type:"path" help:"File of the results in vegeta's format, for vegeta report and vegeta plot."`
	Plan     bool          `help:"Print the plan as JSON and end."`
	Timeout  time.Duration `default:"10m" help:"Limit of one request."`
	Env      string        `enum:"local,kind,cluster" default:"local" help:"Where the load is sent from: this machine, or pods of the kind cluster of weir cluster up, or of the one that --kubeconfig or --context names."`
	Workers  int           `default:"1" help:"In a cluster: pods that share the plan."`
	Shards   int           `hidden:"" help:"This program is one of so many workers."`
	clusterFlags
}

// Help is the long help of the command.
func (loadCmd) Help() string {
	return `Examples:
  weir load workload.yaml --url http://127.0.0.1:8080 --out records.ndjson
  weir load workload.yaml --seed 7 --plan          what would be sent, without sending it
  weir load workload.yaml --env kind --workers 3   from three pods that share the plan, into one bundle

Latency counts from the intended send time. A client that fell behind its schedule makes the run invalid.

Exit status: 0 sent, whatever the answers were; 2 usage or harness error, 3 the run is invalid, 130 interrupted. With --workers those of a
judged run: 0 the plan was played as a whole, 3 not.

workload.yaml:
  name: two-tenants
  duration: 10s
  tenants:
  - name: gold
    fairnessID: gold
    objective: interactive
    arrival: {process: poisson, rate: 5}
    promptTokens: {fixed: 100}
    outputTokens: {fixed: 20}
    stream: true`
}

// Run sends the load.
func (c *loadCmd) Run(con *console) error {
	p, err := c.compile()
	if err != nil {
		return err
	}
	if c.Plan {
		enc := json.NewEncoder(con.out)
		enc.SetIndent("", " ")
		return enc.Encode(p)
	}
	if inCluster(c.Env) {
		return c.share(con, p)
	}
	c.URL = cmp.Or(c.URL, "http://127.0.0.1:8080")
	if c.Shards > 0 {
		return c.work(con, p)
	}
	fmt.Fprintf(con.out, "seed %d, plan %s, %d requests in %s to %s\n", c.Seed, p.Hash()[:12], len(p.Requests), p.Duration, c.URL)
	if err := reachable(con.ctx, c.URL); err != nil {
		return err
	}
	var mu sync.Mutex
	var records []evidence.Client
	clk := clock.NewReal()
	sum, err := runner.Run(con.ctx, p, runner.Config{Sender: &openai.Sender{Client: openai.NewClient(512), Clock: clk, BaseURL: c.URL}, Scenario: p.Name,
		Model: c.Model, Timeout: c.Timeout, OnDone: func(r evidence.Client) {
			mu.Lock()
			defer mu.Unlock()
			records = append(records, r)
		}})
	sort.SliceStable(records, func(i, j int) bool { return records[i].Intended < records[j].Intended })
	if werr := c.write(clk, records); werr != nil {
		return werr
	}
	table(con.out, records)
	fmt.Fprintf(con.out, "behind schedule: p50 %s, p99 %s, max %s\n", sum.BehindP50, sum.BehindP99, sum.BehindMax)
	if err != nil {
		return &exitError{status: ExitInterrupted, text: err.Error()}
	}
	if !sum.Valid {
		return &exitError{status: ExitInconclusive, text: "the run is invalid: " + sum.Invalid}
	}
	return nil
}

func (c *loadCmd) compile() (plan.Plan, error) {
	raw, err := os.ReadFile(c.Workload)
	if err != nil {
		return plan.Plan{}, fmt.Errorf("workload: %w", err)
	}
	spec, err := workload.Parse(c.Workload, raw)
	if err != nil {
		return plan.Plan{}, err
	}
	if c.Seed == 0 {
		c.Seed = drawSeed()
	}
	return plan.Compile(spec, c.Seed)
}

// reachable fails early on a target that nobody serves.
func reachable(ctx context.Context, base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("--url %q: write http://host:port", base)
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	conn, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, "tcp", host)
	if err != nil {
		return fmt.Errorf("--url %s: nobody answers: %w (weir up starts a stack at http://127.0.0.1:8080)", base, err)
	}
	return conn.Close()
}

func (c *loadCmd) write(clk clock.Real, records []evidence.Client) error {
	if c.Out != "" {
		if err := file(c.Out, func(w io.Writer) error {
			enc := json.NewEncoder(w)
			for _, r := range records {
				if err := enc.Encode(r); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if c.Vegeta != "" {
		return file(c.Vegeta, func(w io.Writer) error { return runner.WriteVegeta(w, clk.Epoch(), records) })
	}
	return nil
}

func file(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	if err := write(w); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := w.Flush(); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}

// table prints one row a tenant.
func table(w io.Writer, records []evidence.Client) {
	type row struct {
		n       int
		counts  map[string]int
		latency []float64
	}
	rows := map[string]*row{}
	var names []string
	for _, r := range records {
		x := rows[r.Tenant]
		if x == nil {
			x = &row{counts: map[string]int{}}
			rows[r.Tenant] = x
			names = append(names, r.Tenant)
		}
		x.n++
		x.counts[r.Outcome]++
		if r.Outcome == evidence.Completed {
			x.latency = append(x.latency, float64(r.End-r.Intended)/1e9)
		}
	}
	sort.Strings(names)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tSENT\tCOMPLETED\tREFUSED\tKILLED\tCANCELLED\tERRORS\tLATENCY p50\tp99")
	for _, n := range names {
		x := rows[n]
		s := stats.NewSample(x.latency)
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.3fs\t%.3fs\n", n, x.n, x.counts[evidence.Completed], x.counts[evidence.Refused],
			x.counts[evidence.KilledMidStream], x.counts[evidence.ClientCancelled], x.counts[evidence.TransportError]+x.counts[evidence.Unfinished],
			s.NearestRank(0.5), s.NearestRank(0.99))
	}
	_ = t.Flush()
}
