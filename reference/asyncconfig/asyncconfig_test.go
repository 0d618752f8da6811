package asyncconfig

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/reference/async"
)

// defaults are the flags as the command line leaves them.
func defaults() Flags {
	return Flags{Concurrency: 64, PrometheusCacheTTL: 5 * time.Second, RequestTimeout: 5 * time.Minute, DrainTimeout: 2 * time.Minute,
		GateWaitTimeout: 5 * time.Minute, MetricsPort: 9090, HealthPort: 8081, BacklogInterval: 15 * time.Second, V: 2, Durability: string(AtLeastOnce),
		RetryTransportErrors: true}
}

type files map[string]string

func load(f Flags, env map[string]string, fs files) (*Loader, Config, error) {
	l := NewLoader(f, func(k string) string { return env[k] }, func(name string) ([]byte, error) {
		if text, ok := fs[name]; ok {
			return []byte(text), nil
		}
		return nil, errors.New("open " + name + ": no such file")
	})
	c, err := l.Load()
	return l, c, err
}

// sorted are flags for a sorted-set document.
func sorted(doc string) Flags {
	f := defaults()
	f.Transport, f.TransportConfig = "redis-sortedset", doc
	return f
}

const one = `{"url":"redis://r:6379","queues":[{"queue_name":"q","igw_base_url":"http://gw"}]}`

func TestDefaults(t *testing.T) {
	_, c, err := load(sorted(one), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := c.Queues[0]
	if c.Redis.RetryQueue != "retry-sortedset" || c.Redis.ResultQueue != "result-list" || q.Interval != time.Second || q.Batch != 10 || q.ID != "q" ||
		q.Path != "/v1/completions" || q.Pool != "default" || q.Gate != nil || q.ResultTTL != 0 || len(c.Pools) != 1 || c.Pools[0].Workers != 64 ||
		c.Merge.Kind != async.RandomRobin || c.Merge.FairnessHeader != "x-llm-d-inference-fairness-id" || c.Redis.ClaimLease != 300*time.Second ||
		c.Redis.ReclaimInterval != 15*time.Second {
		t.Errorf("%+v", c)
	}
	f := defaults()
	f.TransportConfig = one
	if _, c, err = load(f, nil, nil); err != nil || c.Transport != RedisPubSub || c.Redis.ResultQueue != "result-queue" || !c.Queues[0].Push {
		t.Errorf("%v %+v", err, c)
	}
}

// TestSevenQueues: the guide's example of seven gates is accepted as a whole, and means what it says (AP-CFG-17).
func TestSevenQueues(t *testing.T) {
	f := sorted(`{"url":"redis://r:6379","queues":[
 {"queue_name":"a","igw_base_url":"http://gw/","gate_type":"constant"},
 {"queue_name":"b","igw_base_url":"http://gw/","gate_type":"prometheus-saturation","gate_params":{"pool":"p1","threshold":"0.8"}},
 {"queue_name":"c","igw_base_url":"http://gw/","gate_type":"prometheus-budget","gate_params":{"pool":"p1","max_concurrency":"100","baseline":"0.05"}},
 {"queue_name":"d","igw_base_url":"http://gw/","gate_type":"redis","gate_params":{"address":"localhost:6379","budget_key":"k"}},
 {"queue_name":"e","igw_base_url":"http://gw/","gate_type":"prometheus-query","gate_params":{"query":"1 - (sum(rate(x{job=\"i\"}[5m])) / 100)","fallback":"0.0"}},
 {"queue_name":"f","igw_base_url":"http://gw/","gate_type":"composite","gate_params":{
  "gates":"[{\"gate_type\":\"prometheus-saturation\",\"gate_params\":{\"pool\":\"p1\"}},{\"gate_type\":\"redis-quota\",\"gate_params\":{\"address\":\"localhost:6379\",\"limit\":\"100\"}}]"}},
 {"queue_name":"g","igw_base_url":"http://gw/","gate_type":"endpoint-scrape","gate_params":{"url":"http://sim:8000/metrics","metric":"vllm:num_requests_waiting","max_count_per_pod":"5","fallback":"1.0"}}]}`)
	f.PrometheusURL = "http://prom:9090"
	_, c, err := load(f, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	kinds := []async.GateKind{async.Constant, async.PrometheusSaturation, async.PrometheusBudget, async.RedisBudget, async.PrometheusQuery, async.Composite, async.EndpointScrape}
	for i, q := range c.Queues {
		if q.Gate == nil || q.Gate.Kind != kinds[i] {
			t.Errorf("%s: %+v", q.Name, q.Gate)
		}
	}
	if quota := c.Queues[5].Gate.Inner[1].Quota; quota.Limit != 100 || quota.Window != time.Minute || quota.Classify || quota.Concurrency || quota.Prefix != "quota:" ||
		quota.Attribute != "userid" {
		t.Errorf("%+v", quota)
	}
	// The saturation of p1 is one source for two gates.
	if c.Queues[1].Gate.Sources[0] != c.Queues[5].Gate.Inner[0].Sources[0] || len(c.Sources) != 2+6+1+1+1 {
		t.Errorf("%d sources: %+v", len(c.Sources), c.Sources)
	}
	m := async.Config{Pools: c.Pools, Sources: make([]async.Source, len(c.Sources))}
	for _, q := range c.Queues {
		if err := m.Check(q.QueueConfig); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(strings.Join(c.Info, "\n"), "closesAtLoadPerReadyPod=95") {
		t.Errorf("%q", c.Info)
	}
}

func TestQueries(t *testing.T) {
	if got := saturationQueries("p", "n")[0]; got != `1 - inference_extension_flow_control_pool_saturation{inference_pool="p",namespace="n"}` {
		t.Error(got)
	}
	want := []string{
		`1 - (sum by(inference_pool)(inference_extension_flow_control_queue_size{inference_pool="p"}) / on() (inference_pool_ready_pods{name="p"} * 100))`,
		`1 - (avg by(name)(inference_pool_per_pod_queue_size{name="p"}) / 100)`,
		`1 - (sum(vllm:num_requests_running{inference_pool="p"}) / on() (inference_pool_ready_pods{name="p"} * 100))`,
	}
	got := budgetQueries("p", "", 100)
	for i, w := range want {
		if got[2*i] != w {
			t.Errorf("%s\nwant %s", got[2*i], w)
		}
	}
}

// TestRefusals is the start-up matrix (spec/async-processor.md §1.6): each row must be refused, naming what and where.
func TestRefusals(t *testing.T) {
	entry := func(more string) string {
		return `{"url":"redis://r:6379","queues":[` + "\n" + `{"queue_name":"q","igw_base_url":"http://gw"` + more + `}]}`
	}
	gate := func(typ, params string) string { return entry(`,"gate_type":"` + typ + `","gate_params":` + params) }
	for name, c := range map[string]struct {
		doc  string
		edit func(*Flags)
		says string
	}{
		"no url":                       {`{"queues":[{"queue_name":"q","igw_base_url":"http://gw"}]}`, nil, "url: is required, here or in REDIS_URL"},
		"a url of another kind":        {strings.Replace(one, "redis://r", "http://r", 1), nil, "--transport-config:1: url: expected redis://"},
		"no queues":                    {`{"url":"redis://r:6379"}`, nil, "queues: at least one queue"},
		"no queue name":                {`{"url":"redis://r:6379","queues":[{"igw_base_url":"http://gw"}]}`, nil, "queues[0].queue_name: is required"},
		"no gateway":                   {`{"url":"redis://r:6379","queues":[{"queue_name":"q"}]}`, nil, "queues[0].igw_base_url: is required"},
		"a gateway that is none":       {strings.Replace(one, "http://gw", "gw:80", 1), nil, "igw_base_url"},
		"a duplicate name":             {entry(`},{"queue_name":"q","id":"other","igw_base_url":"http://gw"`), nil, "duplicate queue name q"},
		"a duplicate id":               {entry(`},{"queue_name":"r","id":"q","igw_base_url":"http://gw"`), nil, "duplicate queue id q"},
		"an unknown pool":              {entry(`,"worker_pool_id":"x"`), nil, `no worker pool "x"`},
		"half a document":              {`{"url":`, nil, "--transport-config:1: the document ends too early"},
		"bad JSON":                     {"{\n\n x}", nil, "--transport-config:3: "},
		"two documents":                {one + one, nil, "more after the end"},
		"an unknown field":             {entry(`,"nonsense":1`), nil, `--transport-config:2: unknown field "queues[0].nonsense"; known here`},
		"a field twice":                {entry(`,"queue_name":"q"`), nil, "appears twice"},
		"an unknown transport":         {one, func(f *Flags) { f.Transport = "kafka" }, `expected redis-pubsub, redis-sortedset or gcp-pubsub, got "kafka"`},
		"a topic without a project":    {`{"result_topic_id":"r","topics":[{"subscriber_id":"s","igw_base_url":"http://gw"}]}`, func(f *Flags) { f.Transport = "gcp-pubsub" }, "project_id: is required"},
		"no subscription":              {`{"project_id":"p","result_topic_id":"r","topics":[{"igw_base_url":"http://gw"}]}`, func(f *Flags) { f.Transport = "gcp-pubsub" }, "topics[0].subscriber_id: is required"},
		"no topics":                    {`{"project_id":"p"}`, func(f *Flags) { f.Transport = "gcp-pubsub" }, "topics: at least one topic"},
		"a negative batch":             {strings.Replace(one, `"url"`, `"batch_size":-1,"url"`, 1), nil, "batch_size: expected an integer of at least 1"},
		"a negative poll":              {strings.Replace(one, `"url"`, `"poll_interval_ms":-1,"url"`, 1), nil, "poll_interval_ms"},
		"a negative TTL":               {entry(`,"result_ttl_seconds":-1`), nil, "result_ttl_seconds"},
		"both documents":               {one, func(f *Flags) { f.TransportConfigFile = "x" }, "exactly one of"},
		"no document":                  {"", nil, "exactly one of"},
		"a missing file":               {"", func(f *Flags) { f.TransportConfigFile = "gone.json" }, "--transport-config-file: open gone.json"},
		"no workers":                   {one, func(f *Flags) { f.Concurrency = 0 }, "--concurrency: must be positive"},
		"half a certificate":           {one, func(f *Flags) { f.TLSCert = "c" }, "must be given together"},
		"a negative watch":             {one, func(f *Flags) { f.WatchInterval = -1 }, "--transport-config-watch-interval: must not be negative"},
		"a watch of an inline text":    {one, func(f *Flags) { f.WatchInterval = 1 }, "needs --transport redis-sortedset and --transport-config-file"},
		"an unknown gate":              {gate("nonsense", "{}"), nil, `unknown gate type "nonsense"`},
		"gate_params as a text":        {gate("redis", `"{}"`), nil, "gate_params: expected an object, got a string"},
		"no address":                   {gate("redis", "{}"), nil, "gate_params.address: is required"},
		"an address without a port":    {gate("redis", `{"address":"r"}`), nil, `expected "host:port"`},
		"no pool":                      {gate("prometheus-saturation", "{}"), nil, "gate_params.pool: is required"},
		"no Prometheus":                {gate("prometheus-query", `{"query":"1"}`), nil, "needs --prometheus-url"},
		"no query":                     {gate("prometheus-query", "{}"), nil, "query: is required"},
		"a threshold above 1":          {gate("prometheus-saturation", `{"pool":"p","threshold":2}`), nil, "threshold: expected a number from 0 to 1"},
		"no capacity":                  {gate("prometheus-budget", `{"pool":"p","max_concurrency":0}`), nil, "max_concurrency"},
		"no page":                      {gate("endpoint-scrape", `{"metric":"m"}`), nil, "gate_params.url: is required"},
		"a page without a metric":      {gate("endpoint-scrape", `{"url":"http://x/m"}`), nil, "metric: is required"},
		"labels that are no object":    {gate("endpoint-scrape", `{"url":"http://x/m","metric":"m","labels":"[1]"}`), nil, "labels: expected an object"},
		"half a pod count":             {gate("endpoint-scrape", `{"url":"http://x/m","metric":"m","pods_url":"http://x/m"}`), nil, "pods_metric: is required"},
		"limit 0":                      {gate("local-max-concurrency", `{"limit":"0"}`), nil, "limit: a positive integer is required"},
		"limit -1":                     {gate("local-max-concurrency", `{"limit":-1}`), nil, "limit: a positive integer is required"},
		"no limit":                     {gate("local-max-concurrency", `{}`), nil, "limit: a positive integer is required"},
		"a quota without a limit":      {gate("redis-quota", `{"address":"r:1"}`), nil, "limit"},
		"an unknown quota mode":        {gate("redis-quota", `{"address":"r:1","limit":1,"mode":"x"}`), nil, "mode: expected rate-limit or concurrency"},
		"a window without a unit":      {gate("redis-quota", `{"address":"r:1","limit":1,"window":"5"}`), nil, "window: expected a positive duration"},
		"no window":                    {gate("redis-quota", `{"address":"r:1","limit":1,"window":"0s"}`), nil, "window"},
		"no saturation gate":           {gate("tier-priority-admission", `{}`), nil, "saturation_gate: is required"},
		"saturation params no JSON":    {gate("tier-priority-admission", `{"saturation_gate":"redis","saturation_gate_params":"x"}`), nil, "saturation_gate_params: its JSON text"},
		"no gates":                     {gate("composite", `{}`), nil, "gates: is required"},
		"gates no JSON":                {gate("composite", `{"gates":"["}`), nil, "gates: its JSON text"},
		"gates no array":               {gate("composite", `{"gates":"{}"}`), nil, "gates: expected a JSON array"},
		"an error inside a gate":       {gate("composite", `{"gates":"[{\"gate_type\":\"redis\"}]"}`), nil, "gates[0].gate_params.address: is required"},
		"nothing to wrap":              {gate("wait-on-refuse", `{}`), nil, "gate: is required"},
		"an unknown gate parameter":    {gate("constant", `{"x":1}`), nil, `unknown field "queues[0].gate_params.x"`},
		"an unknown log level":         {one, func(f *Flags) { f.ZapLogLevel = "loud" }, "--zap-log-level"},
		"parameters of no gate":        {entry(`,"gate_params":{"limit":1}`), nil, "there is no gate_type"},
		"labels that are no strings":   {entry(`,"labels":{"tier":1}`), nil, "labels.tier: expected a string, got a number"},
		"a queue that is no object":    {`{"url":"redis://r:6379","queues":[1]}`, nil, "queues[0]: expected an object, got a number"},
		"queues that are no array":     {`{"url":"redis://r:6379","queues":{}}`, nil, "queues: expected an array"},
		"a document that is no object": {`[]`, nil, "the document: expected an object"},
	} {
		f := sorted(c.doc)
		if c.edit != nil {
			c.edit(&f)
		}
		_, _, err := load(f, nil, nil)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v\nwant %s", name, err, c.says)
		}
	}
	if _, c, err := load(sorted(one), map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, nil); err != nil || !c.Tracing {
		t.Error(err)
	}
}

// TestAllErrorsAtOnce: one start names everything that is wrong.
func TestAllErrorsAtOnce(t *testing.T) {
	f := sorted(`{"batch_size":0,"queues":[{"igw_base_url":"x","gate_type":"redis"}]}`)
	f.Concurrency, f.TLSKey = -1, "k"
	_, _, err := load(f, nil, nil)
	if n := strings.Count(err.Error(), "\n") + 1; n != 7 {
		t.Errorf("%d errors:\n%v", n, err)
	}
}

// TestLenient: what the guide's processor ignores is ignored, with a warning (AP-GATE-02, AP-CFG-18).
func TestLenient(t *testing.T) {
	f := sorted(`{"url":"redis://r:6379","new":1,"queues":[{"queue_name":"q","igw_base_url":"http://gw","gate_type":"nonsense"}]}`)
	f.Lenient = true
	_, c, err := load(f, nil, nil)
	if err != nil || len(c.Warnings) != 2 || c.Queues[0].Gate != nil {
		t.Errorf("%v %q", err, c.Warnings)
	}
	// Policies and transforms are read strictly by the guide's processor too (AP-MERGE-11, AP-XFORM-06).
	f.MergePolicyFile, f.TransformConfigFile = "m.json", "t.json"
	_, _, err = load(f, nil, files{"m.json": `{"type":"random-robin","extra":1}`, "t.json": `{"requestTransforms":[],"extra":1}`})
	if err == nil || strings.Count(err.Error(), `unknown field "extra"`) != 2 || strings.Contains(err.Error(), "--lenient") {
		t.Errorf("%v", err)
	}
}

func TestPools(t *testing.T) {
	with := func(doc string) error {
		f := sorted(one)
		f.PoolConfigFile = "pools.json"
		_, _, err := load(f, nil, files{"pools.json": doc})
		return err
	}
	if err := with(`[{"id":"default","workers":4,"gate_type":"local-max-concurrency","gate_params":{"limit":"2"}}]`); err != nil {
		t.Error(err)
	}
	for doc, says := range map[string]string{
		`{}`: "expected an array of pools", `[]`: "expected an array of pools", `[{"workers":1}]`: "[0].id: is required",
		`[{"id":"default"}]`: "workers: is required", `[{"id":"default","workers":0}]`: "workers: expected an integer of at least 1",
		`[{"id":"default","workers":1},{"id":"default","workers":1}]`: "duplicate pool", `[{"id":"x","workers":1}]`: `no worker pool "default"`, `[1]`: "expected an object",
	} {
		if err := with(doc); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", doc, err)
		}
	}
	f := defaults()
	f.PoolConfigFile, f.Older.RedisURL, f.Older.IGWBaseURL = "pools.json", "redis://r:6379", "http://gw"
	if _, _, err := load(f, nil, files{"pools.json": `[{"id":"default","workers":1}]`}); err == nil || !strings.Contains(err.Error(), "--pool-config-file: needs") {
		t.Error(err)
	}
}

func TestMergePolicy(t *testing.T) {
	with := func(doc string, older bool) (Config, error) {
		f := sorted(one)
		f.MergePolicyFile = "m.json"
		if older {
			f.MergePolicyFile, f.Older.MergePolicyFile = "", "m.json"
		}
		_, c, err := load(f, nil, files{"m.json": doc})
		return c, err
	}
	sample := `{"type":"tier-priority","parameters":{"priority_header":"x-p","lane_objectives":{"reserved-interactive":"premium-latency","overflow-batch":"best-effort"}}}`
	for _, older := range []bool{false, true} {
		c, err := with(sample, older)
		if err != nil || c.Merge.Kind != async.TierPriority || c.Merge.LaneObjectives != [6]string{0: "premium-latency", 5: "best-effort"} ||
			c.Merge.PriorityHeader != "x-p" || c.Merge.ObjectiveHeader != "x-llm-d-inference-objective" || c.Queues[0].Ahead != 1000 {
			t.Errorf("%v %+v", err, c.Merge)
		}
	}
	if c, err := with(`{"type":"random-robin","parameters":{"fairness_header":"","fairness_attribute":"team"}}`, false); err != nil ||
		c.Merge.FairnessHeader != "" || c.Merge.FairnessAttribute != "team" {
		t.Errorf("%v %+v", err, c.Merge)
	}
	for doc, says := range map[string]string{
		`{"type":"x"}`: "expected random-robin or tier-priority", `{"type":"random-robin","x":1}`: "unknown field",
		`{"type":"tier-priority","parameters":{"priority_header":"a b"}}`:                        "no legal HTTP header name",
		`{"type":"tier-priority","parameters":{"objective_header":"a b","fairness_header":"ä"}}`: "parameters.fairness_header",
		`{"type":"tier-priority","parameters":{"lane_objectives":{"reserved":"x"}}}`:             `unknown field "parameters.lane_objectives.reserved"`,
	} {
		if _, err := with(doc, false); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

// TestOlderFlags: each family is translated, with a warning for each flag; the newer flags win (AP-CLI-14 to AP-CLI-19).
func TestOlderFlags(t *testing.T) {
	f := defaults()
	poll := 100
	f.Older = OlderFlags{MessageQueueImpl: "redis-sortedset", RedisURL: "redis://r:6379", SSBaseURL: "http://gw", SSRequestPath: "/v1/x", SSObjective: "o",
		SSResultQueue: "res", SSPollInterval: &poll, SSGateType: "redis", SSGateParams: `{"address":"r:1"}`}
	_, c, err := load(f, nil, nil)
	q := c.Queues[0]
	if err != nil || q.Name != "request-sortedset" || q.Path != "/v1/x" || q.Objective != "o" || c.Redis.ResultQueue != "res" || q.Batch != 10 ||
		q.Interval != 100*time.Millisecond || q.Gate.Kind != async.RedisBudget || len(c.Warnings) != 9 {
		t.Errorf("%v %+v %q", err, c, c.Warnings)
	}
	f.Older = OlderFlags{IGWBaseURL: "http://gw", ResultQueue: "res", SSObjective: "o"}
	_, c, err = load(f, map[string]string{"REDIS_URL": "redis://env:6379"}, nil)
	if err != nil || c.Transport != RedisPubSub || c.Queues[0].Name != "request-queue" || c.Redis.URL != "redis://env:6379" || len(c.Warnings) != 4 {
		t.Errorf("%v %+v %q", err, c, c.Warnings)
	}
	f.Transport, f.TransportConfig = "redis-sortedset", one
	if _, c, err = load(f, nil, nil); err != nil || c.Redis.URL != "redis://r:6379" || !strings.Contains(c.Warnings[0], "ignored beside") {
		t.Errorf("%v %q", err, c.Warnings)
	}
	f = defaults()
	f.Older = OlderFlags{MessageQueueImpl: "redis-sortedset", RedisURL: "redis://r:6379", SSQueuesConfigFile: "q.json", SSBaseURL: "http://gw"}
	if _, _, err = load(f, nil, files{"q.json": `[{"queue_name":"q","igw_base_url":"http://gw"}]`}); err == nil || !strings.Contains(err.Error(), "--redis.ss.igw-base-url: cannot stand beside") {
		t.Error(err)
	}
	g := defaults()
	g.Older = OlderFlags{MessageQueueImpl: "gcp-pubsub-gated", PSProject: "p", PSResultTopic: "r", PSSubscriber: "s", PSBaseURL: "http://gw"}
	if _, c, err := load(g, nil, nil); err != nil || c.Transport != GCPPubSub || c.PubSub != (PubSub{"p", "r"}) || c.Queues[0].Name != "s" || c.Queues[0].Batch != 10 {
		t.Errorf("%v %+v", err, c)
	}
	f.Older.SSBaseURL = ""
	if _, c, err = load(f, nil, files{"q.json": `[{"queue_name":"q","igw_base_url":"http://gw"}]`}); err != nil || c.Queues[0].Name != "q" {
		t.Error(err)
	}
}

// TestReload: only queues may change; a bad file leaves the former configuration, and empty is allowed (AP-RELOAD).
func TestReload(t *testing.T) {
	f := sorted("")
	f.TransportConfigFile, f.WatchInterval = "t.json", time.Second
	fs := files{"t.json": one}
	l, _, err := load(f, nil, fs)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		doc     string
		changed bool
		says    string
	}{
		{one, false, ""},
		{one + " ", false, ""},
		{one[:20], false, "ends too early"},
		{strings.Replace(one, `"url"`, `"batch_size":5,"url"`, 1), false, "only queues may change"},
		{strings.Replace(one, `}]`, `},{"queue_name":"r","igw_base_url":"http://gw","gate_type":"redis","gate_params":{"address":"r:1"}}]`, 1), true, ""},
		{`{"url":"redis://r:6379","queues":[]}`, true, ""},
		{`{"url":"redis://r:6379","poll_interval_ms":5,"queues":[]}`, false, "only queues may change"},
		{one, true, ""},
	} {
		fs["t.json"] = c.doc
		_, changed, err := l.Reload()
		if changed != c.changed || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v", c.doc, changed, err)
		}
	}
	if len(l.sources) != 1 {
		t.Errorf("sources %v", l.sources)
	}
}

func FuzzTransport(f *testing.F) {
	f.Add(one)
	f.Fuzz(func(t *testing.T, doc string) {
		_, c, err := load(sorted(doc), nil, nil)
		if err != nil {
			return
		}
		m := async.Config{Pools: c.Pools, Sources: make([]async.Source, len(c.Sources))}
		for _, q := range c.Queues {
			if err := m.Check(q.QueueConfig); err != nil {
				t.Fatalf("%s: accepted, but the machine refuses it: %v", doc, err)
			}
		}
	})
}

func TestTransforms(t *testing.T) {
	with := func(doc string) (Config, error) {
		f := sorted(one)
		f.TransformConfigFile = "x.json"
		_, c, err := load(f, nil, files{"x.json": doc})
		return c, err
	}
	entry := func(more string) string { return `{"requestTransforms":[` + more + `]}` }
	good := `{"name":"w","type":"gcs_uri_multipart","parameters":{"providers":["whisper"]}}`
	if c, err := with(entry(good)); err != nil || len(c.Transforms) != 1 || c.Transforms[0].Providers[0] != "whisper" {
		t.Errorf("%v %+v", err, c.Transforms)
	}
	for doc, says := range map[string]string{
		`{"responseTransforms":[]}`: `unknown field "responseTransforms"`, entry(good + "," + good): "duplicate transform",
		entry(`{"name":"w","type":"x"}`): "expected gcs_uri_multipart", entry(`{"type":"gcs_uri_multipart","parameters":{"providers":["a"]}}`): "name: is required",
		entry(`{"name":"w","type":"gcs_uri_multipart"}`): "parameters: is required", entry(`1`): "expected an object",
		entry(`{"name":"w","type":"gcs_uri_multipart","parameters":{"providers":[]}}`):          "at least one",
		entry(`{"name":"w","type":"gcs_uri_multipart","parameters":{"providers":[""]}}`):        "not empty",
		entry(`{"name":"w","type":"gcs_uri_multipart","parameters":{"providers":["a"],"x":1}}`): "unknown field",
	} {
		if _, err := with(doc); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}
