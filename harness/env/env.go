// Package env is what the environments share: how a script's request looks on the wire, how a metrics page becomes samples, and where
// a faulty variant of the reference may be put together.
package env

import (
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"

	dto "github.com/prometheus/client_model/go"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/loadgen/openai"
	"github.com/llm-weir/weir/reference/asyncproc"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
)

// Model is the model name of script requests.
const Model = "weir-model"

// DefaultPath is where script requests go unless they say otherwise.
const DefaultPath = "/v1/completions"

// Tamper changes the reference while it is put together, between its parts and never inside them; nil fields change nothing. It makes
// the mutants of package selfcheck.
type Tamper struct {
	Config   func(*epconfig.Config)
	Wiring   func(*epp.Wiring)
	Document func(string) string // the configuration document as the picker reads it
	Plane    DataPlane
	// Batch is put around the steps of the batch processor. Only the virtual environment knows it.
	Batch func(asyncproc.Step) asyncproc.Step
	// AlphaIsStable lets alpha plugins in without a flag.
	AlphaIsStable bool
}

// DataPlane are faults beside the picker: in what carries requests and responses. Only the virtual environment knows them.
type DataPlane struct {
	Forward          func([]byte) []byte // the body as it is forwarded
	Upstream         func(int) int       // the error status of a model server as it is passed on
	IgnoreDisconnect bool                // a client that left is not followed by an abort at the model server
	Twice            bool                // a request is sent to its model server twice
	ForwardRefused   bool                // a refused request is forwarded all the same
	CompleteEvicted  bool                // a stream that is evicted looks complete to its client
	LeakSameID       bool                // the end of a request is lost while another with its x-request-id is open
	SkipValidation   bool                // malformed bodies are queued like any other
	Metadata         func(string) string // the destination in the load balancer's metadata, from that in the header
	Early            bool                // the router says something before it has decided
	RawOnly          bool                // header values are read from their raw form alone
	CaseSensitive    bool                // header names are compared with their case
	FirstWins        bool                // of a repeated header the first value counts
	IgnoreDeadline   bool                // the deadline of a stream is not heeded
	HalfCloseCancels bool                // a half-closed stream counts as a client that left
	QueueBodyless    bool                // requests without a body wait like any other
	Answer           func([]byte) []byte // an answer as it is passed on
	IdleHolds        bool                // an idle stream keeps the router from ending
	AlwaysServing    bool                // the health service knows one answer
	BlindEngine      bool                // a model server's own page does not count what waits there
	NewRequestID     bool                // a request id of the client's is replaced
	LoseToken        bool                // each answer reaches its client with one token less
}

// Load reads a configuration document as the tampered reference does.
func (t Tamper) Load(doc string, c epconfig.Contract) (epconfig.Config, error) {
	if t.Document != nil {
		doc = t.Document(doc)
	}
	cfg, err := epconfig.Load("config.yaml", []byte(doc), c)
	if err == nil && t.Config != nil {
		t.Config(&cfg)
	}
	return cfg, err
}

// Path is the request path of r.
func Path(r sut.Request) string {
	if r.Path == "" {
		return DefaultPath
	}
	return r.Path
}

// Body is the body of r.
func Body(r sut.Request) []byte {
	if r.Body != "" {
		return []byte(r.Body)
	}
	if r.NoBody || r.Method == http.MethodGet {
		return nil
	}
	tokens := r.MaxTokens
	if tokens == 0 {
		tokens = 4
	}
	if r.Size < large {
		return openai.BuildBody(Path(r), Model, max(4, r.Prompt), tokens, r.Stream, r.Size)
	}
	key := bodyKey{Path(r), max(4, r.Prompt), tokens, r.Size, r.Stream}
	if b, ok := bodies.Load(key); ok {
		return b.([]byte)
	}
	b := openai.BuildBody(key.path, Model, key.prompt, key.tokens, key.stream, key.size)
	bodies.Store(key, b)
	return b
}

// large is the size from which equal bodies are made once and shared; nobody writes to them.
const large = 1 << 20

type bodyKey struct {
	path                 string
	prompt, tokens, size int
	stream               bool
}

var bodies sync.Map

// Headers are the request headers of r beyond the sender's own. addresses maps endpoint names to ip:port.
func Headers(scenario string, r sut.Request, addresses func(string) string) map[string]string {
	h := map[string]string{wire.HeaderID: r.ID, wire.HeaderScenario: scenario}
	for k, v := range r.Extra {
		h[strings.ToLower(k)] = v
	}
	if r.HoldAfter > 0 {
		h[wire.HeaderHoldAfter] = itoa(r.HoldAfter)
	}
	if r.PassHold {
		h[wire.HeaderPassHold] = "1"
	}
	if len(r.Subset) > 0 {
		var list []string
		for _, name := range r.Subset {
			list = append(list, addresses(name))
		}
		h[wire.HeaderSubset] = strings.Join(list, ",")
	}
	return h
}

// Sent is the client record of r before anything is known of its ending.
func Sent(scenario string, r sut.Request, body []byte) evidence.Client {
	return evidence.Client{Scenario: scenario, ID: r.ID, Tenant: r.Tenant, Objective: r.Objective, Stream: r.Stream,
		Intended: evidence.Never, Sent: evidence.Never, Headers: evidence.Never, FirstToken: evidence.Never, LastToken: evidence.Never,
		End: evidence.Never, Outcome: evidence.Unfinished, RequestBytes: int64(len(body)), BodySHA256: Hash(body)}
}

// Page is a metrics page as it was read.
type Page struct {
	Families []*dto.MetricFamily
	At       int64
	Mark     string   // the step that asked for it
	Source   string   // "router" or an endpoint name
	All      bool     // keep every family and its type, not only those of flow control
	Only     []string // of All: keep these families; nil: all
}

// Pressure are the families of a model server that say how full it is.
var Pressure = []string{wire.VLLMRunning, wire.VLLMWaiting, wire.VLLMKVUsage, wire.VLLMPreemptions}

// Samples flattens a page, sorted by name and labels; histograms give their count and sum.
func (p Page) Samples() []evidence.Sample {
	var out []evidence.Sample
	for _, f := range p.Families {
		name := f.GetName()
		kind := ""
		if p.All {
			if p.Only != nil && !slices.Contains(p.Only, name) {
				continue
			}
			kind = strings.ToLower(f.GetType().String())
		} else if !strings.HasPrefix(name, wire.PrefixFlowControl) && !strings.HasPrefix(name, wire.PrefixLegacyFC) {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			add := func(suffix string, v float64) {
				out = append(out, evidence.Sample{At: p.At, Mark: p.Mark, Source: p.Source, Name: name + suffix, Type: kind, Labels: labels, Value: v})
			}
			switch {
			case m.Gauge != nil:
				add("", m.Gauge.GetValue())
			case m.Counter != nil:
				add("", m.Counter.GetValue())
			case m.Histogram != nil:
				add("_count", float64(m.Histogram.GetSampleCount()))
				add("_sum", m.Histogram.GetSampleSum())
			}
		}
	}
	sort.SliceStable(out, func(i, j int) bool {
		if out[i].Name != out[j].Name {
			return out[i].Name < out[j].Name
		}
		return labelKey(out[i].Labels) < labelKey(out[j].Labels)
	})
	return out
}

func labelKey(m map[string]string) string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(k + "\x00" + m[k] + "\x00")
	}
	return b.String()
}

// QueueSize adds up the queue-size gauge under its current name, or under its older one where that is all there is.
func QueueSize(families []*dto.MetricFamily) (int, bool) {
	for _, name := range []string{wire.PrefixFlowControl + wire.MetricQueueSize, wire.PrefixLegacyFC + wire.MetricQueueSize} {
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			total := 0.0
			for _, m := range f.GetMetric() {
				total += m.GetGauge().GetValue()
			}
			return int(total), true
		}
	}
	return 0, false
}

// Features are what the reference under a contract can do.
func Features(c epconfig.Contract) []string {
	fs := []sut.Feature{sut.Hold, sut.Restart, sut.ScaleToZero, sut.Objectives, sut.Metrics, sut.Subset, sut.LoadSync, sut.BatchProcessor}
	if c.Holdback {
		fs = append(fs, sut.Holdback)
	}
	if c.Eviction {
		fs = append(fs, sut.Eviction)
	}
	if c.Stages {
		fs = append(fs, sut.Stages)
	}
	out := make([]string, len(fs))
	for i, f := range fs {
		out[i] = string(f)
	}
	return out
}
