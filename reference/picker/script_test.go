package picker

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/scheduling"
)

// TestScripts plays testdata/*.txt: each file is one topic and cites the requirements it shows. Run with -rewrite to accept the
// present output.
//
//	config key=value...     a fresh picker; see script.config. Input lines are bands: "PRIORITY [round-robin|program-aware] [edf|slo] [max-requests=N] [max-bytes=N]"
//	play                    one event per line: "[TIME] [quiet] VERB ARGS"; see script.event. TIME is absolute, or "+d" after the last one
//	state                   bands, pressure, next deadline, evictions
//	load ID...              requests and tokens in flight on endpoints
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := &script{}
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				s.t = t
				switch d.Cmd {
				case "config":
					return s.config(d)
				case "play":
					return s.play(d.Input)
				case "state":
					return s.state()
				case "load":
					return s.load(d)
				}
				d.Fatalf(t, "unknown command %q", d.Cmd)
				return ""
			})
		})
	}
}

type script struct {
	t       *testing.T
	p       *Picker
	now     time.Duration
	running []uint64 // in flight, oldest dispatch first
	out     strings.Builder
}

// args are the key=value words of a line; a bare word has the value "".
type args map[string]string

func (s *script) parse(words []string) args {
	a := args{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		a[k] = v
	}
	return a
}

func (s *script) has(a args, k string) bool { _, ok := a[k]; return ok }

func (s *script) num(a args, k string, def int) int {
	if v, ok := a[k]; ok {
		n, err := strconv.Atoi(v)
		if err != nil {
			s.t.Fatalf("%s: %v", k, err)
		}
		return n
	}
	return def
}

func (s *script) float(a args, k string, def float64) float64 {
	if v, ok := a[k]; ok {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil {
			s.t.Fatalf("%s: %v", k, err)
		}
		return f
	}
	return def
}

func (s *script) dur(a args, k string) time.Duration {
	if v, ok := a[k]; ok {
		d, err := time.ParseDuration(v)
		if err != nil {
			s.t.Fatalf("%s: %v", k, err)
		}
		return d
	}
	return 0
}

func band(s *script, words []string) flowcontrol.BandConfig {
	a := s.parse(words)
	b := flowcontrol.BandConfig{
		MaxRequests: int64(s.num(a, "max-requests", 0)),
		MaxBytes:    int64(s.num(a, "max-bytes", 0)),
	}
	if s.has(a, "round-robin") {
		b.Fairness = flowcontrol.RoundRobin
	}
	if s.has(a, "program-aware") {
		b.Fairness = flowcontrol.ProgramAware
	}
	if s.has(a, "edf") {
		b.Ordering = flowcontrol.EDF
	}
	if s.has(a, "slo") {
		b.Ordering = flowcontrol.SLODeadline
	}
	return b
}

func (s *script) config(d *datadriven.TestData) string {
	var words []string
	for _, c := range d.CmdArgs {
		words = append(words, c.String())
	}
	a := s.parse(words)
	f := flowcontrol.Config{
		MaxRequests: int64(s.num(a, "max-requests", 0)), MaxBytes: int64(s.num(a, "max-bytes", 0)),
		TTL: s.dur(a, "ttl"), NoEndpointTTL: s.dur(a, "no-endpoint-ttl"),
		Eviction: s.has(a, "eviction"), EmptyPoolOutcomes: !s.has(a, "no-empty-pool-outcomes"), Stages: s.has(a, "stages"),
		FlowIdle: s.dur(a, "flow-idle"), BandIdle: s.dur(a, "band-idle"),
		Ceiling: flowcontrol.CeilingConfig{Threshold: s.float(a, "threshold", 1)},
		Detector: flowcontrol.DetectorConfig{
			Kind: flowcontrol.Concurrency, MaxConcurrency: s.num(a, "limit", 1), Headroom: s.float(a, "headroom", 0),
			Filter: !s.has(a, "no-filter"), FilterFailOpen: s.has(a, "fail-open"), MaxTokens: int64(s.num(a, "token-limit", 0)),
			Mode:           map[string]flowcontrol.ConcurrencyMode{"tokens": flowcontrol.Tokens, "hybrid": flowcontrol.Hybrid}[a["mode"]],
			ForeignLimit:   s.dur(a, "foreign-limit"),
			EstimateOutput: s.has(a, "estimate"), OutputRatio: s.float(a, "estimate", 0), MaxEstimatedOutput: int64(s.num(a, "max-estimate", 0)),
		},
		ProgramAware: flowcontrol.ProgramAwareConfig{
			WeightService: s.float(a, "weight-service", 0.8), WeightHeadWait: s.float(a, "weight-head-wait", 0.2),
			HalfLife: s.dur(a, "half-life"), IdleTTL: s.dur(a, "service-ttl"),
		},
	}
	if s.has(a, "soft-reflective") {
		f.Ceiling = flowcontrol.CeilingConfig{Kind: flowcontrol.SoftReflective}
	}
	if s.has(a, "util") {
		f.Detector.Kind = flowcontrol.Utilization
		f.Detector.QueueDepth, f.Detector.KVUtil = s.num(a, "util", 5), s.float(a, "kv", 0.8)
		f.Detector.Staleness = max(s.dur(a, "staleness"), 200*time.Millisecond)
	}
	if s.has(a, "min") {
		f.Ceiling = flowcontrol.CeilingConfig{Kind: flowcontrol.Holdback, Min: s.float(a, "min", 0), Max: s.float(a, "max", 1), ByValue: s.has(a, "by-value")}
	}
	for _, line := range strings.Split(d.Input, "\n") {
		w := strings.Fields(line)
		switch {
		case len(w) == 0:
		case w[0] == "default":
			f.DefaultBand = band(s, w[1:])
		case w[0] == "default-negative":
			f.DefaultNegativeBand = band(s, w[1:])
		default:
			b := band(s, w[1:])
			b.Priority, _ = strconv.Atoi(w[0])
			f.Bands = append(f.Bands, b)
		}
	}
	sc := scheduling.Config{SubsetFilter: true, MaxEndpoints: s.num(a, "endpoints-per-pick", 1),
		Prefix: scheduling.PrefixConfig{MaxBlocks: s.num(a, "blocks", 0), LRUCapacity: s.num(a, "remember", 0)}}
	if s.has(a, "label") { // key, or key:value
		key, value, some := strings.Cut(a["label"], ":")
		sc.Labels = []scheduling.LabelFilter{{Key: key, Missing: s.has(a, "label-missing")}}
		if some {
			sc.Labels[0].Values = []string{value}
		}
	}
	for _, k := range strings.Split(a["scorers"], ",") {
		for kind, name := range map[scheduling.ScorerKind]string{scheduling.Queue: "queue", scheduling.KVUtilization: "kv",
			scheduling.RunningRequests: "running", scheduling.ActiveRequests: "active", scheduling.PrefixCache: "prefix", scheduling.LoRAAffinity: "lora"} {
			if k == name {
				sc.Scorers = append(sc.Scorers, scheduling.Scorer{Kind: kind, Weight: 1})
			}
		}
	}
	*s = script{t: s.t}
	var err error
	if s.p, err = New(Config{Flow: f, Scheduling: sc}); err != nil {
		return err.Error()
	}
	return ""
}

func (s *script) play(input string) string {
	s.out.Reset()
	for _, line := range strings.Split(input, "\n") {
		line, _, _ = strings.Cut(line, "#")
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		if rel, ok := strings.CutPrefix(w[0], "+"); ok {
			d, err := time.ParseDuration(rel)
			if err != nil {
				s.t.Fatal(err)
			}
			s.now += d
			w = w[1:]
		} else if d, err := time.ParseDuration(w[0]); err == nil {
			s.now = d
			w = w[1:]
		}
		if w[0] == "quiet" { // do as told, print nothing
			shown := s.out.String()
			s.event(w[1], w[2:])
			s.out.Reset()
			s.out.WriteString(shown)
			continue
		}
		s.event(w[0], w[1:])
	}
	return s.out.String()
}

// ids reads "7" or "7-9".
func (s *script) ids(w string) []uint64 {
	a, b, ok := strings.Cut(w, "-")
	if !ok {
		b = a
	}
	from, err1 := strconv.ParseUint(a, 10, 64)
	to, err2 := strconv.ParseUint(b, 10, 64)
	if err1 != nil || err2 != nil {
		s.t.Fatalf("ids %q", w)
	}
	var ids []uint64
	for i := from; i <= to; i++ {
		ids = append(ids, i)
	}
	return ids
}

func (s *script) event(verb string, w []string) {
	switch verb {
	case "endpoint", "remove", "sample":
		s.endpoint(verb, w)
	case "arrive":
		for _, id := range s.ids(w[0]) {
			a := s.parse(w[1:])
			r := Request{FairnessID: a["flow"], Priority: s.num(a, "prio", 0), Bytes: int64(s.num(a, "bytes", 100)),
				Received: s.now - s.dur(a, "received"), TTL: s.dur(a, "ttl"), TTFT: s.dur(a, "ttft"), HasTTFT: s.has(a, "ttft"),
				Tokens: int64(s.num(a, "tokens", 0)), MaxOutput: int64(s.num(a, "max-output", 0)), Model: a["model"]}
			for _, b := range s.list(a, "blocks") {
				h, _ := strconv.ParseUint(b, 10, 64)
				r.Prefix = append(r.Prefix, h)
			}
			if r.HasSubset = s.has(a, "subset"); a["subset"] != "" {
				r.Subset = strings.Split(a["subset"], ",")
			}
			s.step(Event{Kind: Arrive, ID: id, Request: r})
		}
	case "finish", "cancel", "first-chunk":
		kind := map[string]EventKind{"finish": Finish, "cancel": Cancel, "first-chunk": FirstChunk}[verb]
		a := s.parse(w[1:])
		u := Usage{Prompt: int64(s.num(a, "prompt", 0)), Completion: int64(s.num(a, "completion", 0))}
		for _, id := range s.ids(w[0]) {
			s.step(Event{Kind: kind, ID: id, Usage: u})
		}
	case "release": // N: finish the oldest in flight, N times
		n, _ := strconv.Atoi(w[0])
		for range n {
			s.step(Event{Kind: Finish, ID: s.running[0]})
		}
	case "priorities":
		var ps []int
		for _, x := range w {
			p, _ := strconv.Atoi(x)
			ps = append(ps, p)
		}
		s.step(Event{Kind: SetPriorities, Priorities: ps})
	case "report": // REPLICA [age=D] [ENDPOINT=REQUESTS[/TOKENS]]...
		s.report(w)
	case "shutdown":
		s.step(Event{Kind: Shutdown})
	case "tick":
		s.step(Event{Kind: Tick})
	case "wait": // D: tick at every deadline until then
		end, err := time.ParseDuration(w[0])
		if err != nil {
			s.t.Fatal(err)
		}
		end += s.now
		for {
			at, ok := s.p.Deadline()
			if !ok || at > end {
				break
			}
			if at <= s.now {
				s.t.Fatalf("deadline %v is not after %v", at, s.now)
			}
			s.now = at
			s.step(Event{Kind: Tick})
		}
		s.now = end
		s.step(Event{Kind: Tick})
	default:
		s.t.Fatalf("unknown event %q", verb)
	}
}

func (s *script) report(w []string) {
	replica, err := strconv.Atoi(w[0])
	if err != nil {
		s.t.Fatalf("replica %q", w[0])
	}
	r := Report{Replica: replica, At: s.now}
	for _, load := range w[1:] {
		k, v, _ := strings.Cut(load, "=")
		if k == "age" {
			r.At -= s.dur(args{k: v}, k)
			continue
		}
		l := ForeignLoad{Endpoint: EndpointID(s.ids(k)[0])}
		requests, tokens, _ := strings.Cut(v, "/")
		l.Requests = s.num(args{"": requests}, "", 0)
		if tokens != "" {
			l.Tokens = int64(s.num(args{"": tokens}, "", 0))
		}
		r.Loads = append(r.Loads, l)
	}
	s.step(Event{Kind: Foreign, Report: r})
}

func (s *script) endpoint(verb string, w []string) {
	roles := map[string]Role{"": RoleDecode, "decode": RoleDecode, "prefill": RolePrefill, "both": RoleBoth, "none": RoleNone}
	for _, id := range s.ids(w[0]) {
		a, ep := s.parse(w[1:]), EndpointID(id)
		switch verb {
		case "endpoint":
			address := a["address"]
			if address == "" {
				address = fmt.Sprintf("127.0.0.1:%d", 8000+id)
			}
			s.step(Event{Kind: SetEndpoint, Endpoint: Endpoint{ID: ep, Name: fmt.Sprint("e", id), Address: address, Role: roles[a["role"]], Labels: a["labels"]}})
		case "remove":
			s.step(Event{Kind: RemoveEndpoint, Endpoint: Endpoint{ID: ep}})
		case "sample":
			s.step(Event{Kind: Sample, Endpoint: Endpoint{ID: ep}, Load: Load{
				At: s.now - s.dur(a, "age"), OK: !s.has(a, "failed"),
				Waiting: s.float(a, "waiting", 0), KV: s.float(a, "kv", 0), Running: s.float(a, "running", 0),
				HasWaiting: !s.has(a, "no-waiting"), HasKV: !s.has(a, "no-kv"),
				Adapters: s.list(a, "adapters"), WaitingAdapters: s.list(a, "waiting-adapters"), MaxAdapters: s.num(a, "slots", 0),
			}})
		}
	}
}

func (s *script) step(ev Event) {
	if ev.Kind == Finish {
		for i, id := range s.running {
			if id == ev.ID {
				s.running = append(s.running[:i], s.running[i+1:]...)
				break
			}
		}
	}
	for _, o := range s.p.Step(s.now, ev, nil) {
		fmt.Fprintf(&s.out, "%v: ", s.now)
		switch o.Kind {
		case Dispatch:
			s.running = append(s.running, o.ID)
			fmt.Fprintf(&s.out, "dispatch %d to %d", o.ID, o.Endpoint)
			if o.Split {
				fmt.Fprintf(&s.out, " after %d", o.Prefill)
			}
			if o.Fallbacks != nil {
				fmt.Fprintf(&s.out, " then %v", o.Fallbacks)
			}
		case Reject:
			fmt.Fprintf(&s.out, "reject %d %v", o.ID, o.Outcome)
		case Evict:
			fmt.Fprintf(&s.out, "evict %d from %d", o.ID, o.Endpoint)
		}
		fmt.Fprintf(&s.out, " band=%d", o.Band)
		if o.Waited != 0 {
			fmt.Fprintf(&s.out, " waited=%v", o.Waited)
		}
		s.out.WriteByte('\n')
	}
}

func (s *script) state() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: queued %d\n", s.now, s.p.QueueLen())
	for _, x := range s.p.Bands(nil) {
		fmt.Fprintf(&b, "band %d: ceiling %.4g, %d requests, %d bytes, %d flows\n", x.Priority, x.Ceiling, x.Requests, x.Bytes, x.Flows)
	}
	pr := s.p.Pressure()
	fmt.Fprintf(&b, "pressure %.4g", pr.Effective)
	if pr.HasPrefill {
		fmt.Fprintf(&b, ", prefill %.4g", pr.Prefill)
	}
	if pr.HasDecode {
		fmt.Fprintf(&b, ", decode %.4g", pr.Decode)
	}
	if pr.Stale > 0 {
		fmt.Fprintf(&b, ", %d stale", pr.Stale)
	}
	b.WriteByte('\n')
	if at, ok := s.p.Deadline(); ok {
		fmt.Fprintf(&b, "deadline %v\n", at)
	}
	if n, v := s.p.Evictions(nil); len(n) > 0 {
		fmt.Fprintf(&b, "evictions %v, %d confirmed, %d timed out, %d outstanding\n", n, v.Confirmed, v.TimedOut, v.Outstanding)
	}
	if took := s.p.Confirmations(nil); len(took) > 0 {
		fmt.Fprintf(&b, "confirmed after %v\n", took)
	}
	return b.String()
}

func (s *script) load(d *datadriven.TestData) string {
	var b strings.Builder
	for _, a := range d.CmdArgs {
		for _, id := range s.ids(a.Key) {
			fmt.Fprintf(&b, "%d: %d requests, %d tokens\n", id, s.p.InFlight(EndpointID(id)), s.p.InFlightTokens(EndpointID(id)))
		}
	}
	return b.String()
}

// list reads "a,b"; empty for none.
func (s *script) list(a args, k string) []string {
	if a[k] == "" {
		return nil
	}
	return strings.Split(a[k], ",")
}
