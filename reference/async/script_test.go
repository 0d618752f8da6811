package async

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScripts plays testdata/*.txt: each file is one topic and cites the requirements it shows. Run with -rewrite to accept the
// present output.
//
//	machine key=value...    a fresh machine; see script.machine. Input lines are "pool NAME key=value...", "source [ttl=D]",
//	                        "queue NAME key=value..." (served from the start). Gates are written as in script.gate.
//	play                    one event per line: "[TIME] VERB ARGS"; see script.event. TIME is absolute, or "+d" after the last one
//	state                   queues, gates, next deadline
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
				case "machine":
					return s.machine(d)
				case "play":
					return s.play(d.Input)
				case "state":
					return s.state()
				}
				d.Fatalf(t, "unknown command %q", d.Cmd)
				return ""
			})
		})
	}
}

type script struct {
	t      *testing.T
	m      *Machine
	now    time.Duration
	queues map[string]QueueKey
	names  map[QueueKey]string
	holds  map[MessageID]HoldID
	out    strings.Builder
}

type args map[string]string

func parseArgs(words []string) args {
	a := args{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		a[k] = v
	}
	return a
}

func (a args) has(k string) bool { _, ok := a[k]; return ok }

func (a args) num(k string, def float64) float64 {
	if v, ok := a[k]; ok {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil {
			panic(err)
		}
		return f
	}
	return def
}

func (a args) dur(k string, def time.Duration) time.Duration {
	if v, ok := a[k]; ok {
		d, err := time.ParseDuration(v)
		if err != nil {
			panic(err)
		}
		return d
	}
	return def
}

func (a args) str(k, def string) string {
	if v, ok := a[k]; ok {
		return v
	}
	return def
}

// gate reads "NAME" or "NAME(arg,...)"; an argument is key=value, a word, or a gate.
func gate(text string) *Gate {
	if text == "" {
		return nil
	}
	name, rest, _ := strings.Cut(text, "(")
	rest = strings.TrimSuffix(rest, ")")
	var parts []string
	depth, from := 0, 0
	for i, r := range rest {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			parts = append(parts, rest[from:i])
			from = i + 1
		}
	}
	parts = append(parts, rest[from:])
	a := args{}
	g := &Gate{}
	for _, p := range parts {
		k, v, ok := strings.Cut(p, "=")
		if strings.Contains(k, "(") || p == "constant" {
			g.Inner = append(g.Inner, gate(p))
		} else if ok || p != "" {
			a[k] = v
		}
	}
	for _, s := range strings.Split(a["sources"], "+") {
		if s != "" {
			n, _ := strconv.Atoi(s)
			g.Sources = append(g.Sources, SourceID(n))
		}
	}
	g.Fallback, g.Baseline, g.Threshold = a.num("fallback", 0), a.num("baseline", 0), a.num("threshold", 0)
	g.Limit, g.Blocking, g.Inference = int(a.num("limit", 0)), a.has("blocking"), a["inference"]
	switch name {
	case "constant":
	case "redis":
		g.Kind = RedisBudget
	case "saturation":
		g.Kind, g.Threshold = PrometheusSaturation, a.num("threshold", 0.8)
	case "budget":
		g.Kind, g.Baseline = PrometheusBudget, a.num("baseline", 0.05)
	case "query":
		g.Kind = PrometheusQuery
	case "scrape":
		g.Kind, g.MaxCountPerPod = EndpointScrape, a.num("per-pod", 0)
	case "local":
		g.Kind = LocalMaxConcurrency
	case "quota":
		g.Kind = RedisQuota
		g.Quota = &Quota{Prefix: a.str("prefix", "quota:"), Attribute: a.str("attribute", "userid"), Concurrency: a.has("concurrency"),
			Limit: int64(a.num("limit", 1)), Window: a.dur("window", time.Minute), Classify: a.has("classify")}
		g.Limit = 0
	case "tier":
		g.Kind, g.TierLabel = TierPriorityAdmission, a.str("label", "tier")
	case "composite":
		g.Kind = Composite
	case "wait":
		g.Kind = WaitOnRefuse
	default:
		panic("unknown gate " + name)
	}
	return g
}

func (s *script) machine(d *datadriven.TestData) string {
	var words []string
	for _, c := range d.CmdArgs {
		words = append(words, c.String())
	}
	a := parseArgs(words)
	cfg := Config{Seed: uint64(a.num("seed", 1)), EpochUnix: int64(a.num("epoch", 0) * 1e9), RetryTransport: a.has("retry-transport"),
		RequestTimeout: a.dur("request-timeout", 0), GateWait: a.dur("gate-wait", 0),
		Merge: MergeConfig{FairnessHeader: a.str("fairness-header", "x-llm-d-inference-fairness-id"), FairnessAttribute: a.str("fairness-attribute", "userid")}}
	if a.has("tiers") {
		cfg.Merge.Kind, cfg.Merge.TierLabel = TierPriority, a.str("tier-label", "tier")
		cfg.Merge.PriorityHeader, cfg.Merge.ObjectiveHeader = a.str("priority-header", "x-gateway-priority"), "x-llm-d-inference-objective"
		for i, n := range LaneNames {
			cfg.Merge.LaneObjectives[i] = a[n]
		}
	}
	*s = script{t: s.t, queues: map[string]QueueKey{}, names: map[QueueKey]string{}, holds: map[MessageID]HoldID{}}
	var queues []string
	for _, line := range strings.Split(d.Input, "\n") {
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		switch w[0] {
		case "pool":
			la := parseArgs(w[2:])
			cfg.Pools = append(cfg.Pools, PoolConfig{Name: w[1], Workers: int(la.num("workers", 1)), Gate: gate(la["gate"])})
		case "source":
			cfg.Sources = append(cfg.Sources, Source{TTL: parseArgs(w[1:]).dur("ttl", 0)})
		case "queue":
			queues = append(queues, line)
		}
	}
	var err error
	if s.m, err = New(cfg); err != nil {
		return err.Error()
	}
	var bad []string
	for _, q := range queues {
		w := strings.Fields(q)
		if err := cfg.Check(queueConfig(w[1], parseArgs(w[2:]))); err != nil {
			bad = append(bad, err.Error())
			continue
		}
		s.event("add", w[1:])
	}
	return strings.Join(bad, "\n") + s.out.String()
}

func queueConfig(name string, a args) QueueConfig {
	q := QueueConfig{ID: name + "-id", Name: name, Pool: a.str("pool", "p"), BaseURL: a.str("base", "http://gw"), Path: a.str("path", "/v1/completions"),
		Objective: a["objective"], Gate: gate(a["gate"]), Push: a.has("push"), Batch: int(a.num("batch", 10)), Interval: a.dur("interval", time.Second),
		Eager: a.has("eager"), Ahead: int(a.num("ahead", 10)), Labels: map[string]string{}}
	if q.Push && !a.has("batch") {
		q.Batch, q.Interval = 0, 0
	}
	for k, v := range a {
		if l, ok := strings.CutPrefix(k, "label:"); ok {
			q.Labels[l] = v
		}
	}
	return q
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
		s.event(w[0], w[1:])
	}
	return s.out.String()
}

func ids(w string) []MessageID {
	a, b, ok := strings.Cut(w, "-")
	if !ok {
		b = a
	}
	from, err1 := strconv.Atoi(a)
	to, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil {
		panic("ids " + w)
	}
	var out []MessageID
	for i := from; i <= to; i++ {
		out = append(out, MessageID(i))
	}
	return out
}

func (s *script) event(verb string, w []string) {
	switch verb {
	case "tick":
		s.step(Event{})
	case "add": // NAME key=value...
		key := QueueKey(len(s.names) + 1)
		s.queues[w[0]], s.names[key] = key, w[0]
		s.step(Event{Kind: AddQueue, Queue: key, QueueConfig: queueConfig(w[0], parseArgs(w[1:]))})
	case "add-source":
		s.step(Event{Kind: AddSource, TTL: parseArgs(w).dur("ttl", 0)})
	case "remove":
		s.step(Event{Kind: RemoveQueue, Queue: s.queues[w[0]]})
	case "wake":
		s.step(Event{Kind: Wake, Queue: s.queues[w[0]]})
	case "pulled": // QUEUE [IDS [key=value...]]; "failed" in place of the ids
		s.pulled(w)
	case "backlog":
		n, _ := strconv.Atoi(w[1])
		s.step(Event{Kind: Backlog, Queue: s.queues[w[0]], Count: n})
	case "reading": // SOURCE VALUE|empty|fail
		n, _ := strconv.Atoi(w[0])
		ev := Event{Kind: Reading, Source: SourceID(n), Status: Sample}
		switch w[1] {
		case "empty":
			ev.Status = Empty
		case "fail":
			ev.Status = NoAnswer
		default:
			ev.Value, _ = strconv.ParseFloat(w[1], 64)
		}
		s.step(ev)
	case "quota": // IDS within|over|fail
		for _, id := range ids(w[0]) {
			s.step(Event{Kind: Acquired, ID: id, Hold: s.holds[id], Quota: map[string]QuotaAnswer{"within": Within, "over": Over, "fail": QuotaFailed}[w[1]]})
		}
	case "answer": // IDS STATUS|refused|truncated|unsendable [retry-after=S]
		a := parseArgs(w[2:])
		for _, id := range ids(w[0]) {
			ans := Answer{RetryAfter: a["retry-after"]}
			if status, err := strconv.Atoi(w[1]); err == nil {
				ans.Status, ans.Body = status, "body"
			} else {
				ans.Failure = map[string]Failure{"refused": Transport, "truncated": Truncated, "unsendable": Unsendable}[w[1]]
				ans.Error = w[1]
			}
			s.step(Event{Kind: Response, ID: id, Response: ans})
		}
	case "cancel":
		for _, id := range ids(w[0]) {
			s.step(Event{Kind: Cancel, ID: id})
		}
	case "drain":
		s.step(Event{Kind: Drain})
	case "abandon":
		s.step(Event{Kind: Abandon})
	case "wait": // D: tick at every deadline until then
		s.wait(w[0])
	default:
		s.t.Fatalf("unknown event %q", verb)
	}
}

func (s *script) pulled(w []string) {
	ev := Event{Kind: Pulled, Queue: s.queues[w[0]]}
	if len(w) > 1 && w[1] == "failed" {
		ev.Failed = true
	} else if len(w) > 1 {
		a := parseArgs(w[2:])
		for _, id := range ids(w[1]) {
			ev.Messages = append(ev.Messages, message1(id, a))
		}
	}
	s.step(ev)
}

func message1(id MessageID, a args) Message {
	r := Request{ID: fmt.Sprint("m", id), Deadline: int64(a.num("deadline", 1000)), Payload: []byte(`{"a":1}`), Endpoint: a["endpoint"],
		Metadata: map[string]string{}, Headers: map[string]string{}}
	if a.has("id") {
		r.ID = a["id"]
	}
	in := Internal{RetryCount: int(a.num("retries", 0)), Labels: map[string]string{}}
	for k, v := range a {
		if h, ok := strings.CutPrefix(k, "header:"); ok {
			r.Headers[h] = v
		}
		if l, ok := strings.CutPrefix(k, "label:"); ok {
			in.Labels[l] = v
		}
		if l, ok := strings.CutPrefix(k, "meta:"); ok {
			r.Metadata[l] = v
		}
	}
	if a.has("user") {
		r.Metadata["userid"] = a["user"]
	}
	e, err := NewEnvelope(r, in)
	if err != nil {
		panic(err)
	}
	return Message{ID: id, Envelope: e, Unreadable: a.has("unreadable"), Invalid: a["invalid"], Cancelled: a.has("cancelled")}
}

func (s *script) wait(d string) {
	end, err := time.ParseDuration(d)
	if err != nil {
		s.t.Fatal(err)
	}
	end += s.now
	for {
		at, ok := s.m.Deadline()
		if !ok || at > end {
			break
		}
		if at <= s.now {
			s.t.Fatalf("deadline %v is not after %v", at, s.now)
		}
		s.now = at
		s.step(Event{})
	}
	s.now = end
	s.step(Event{})
}

func (s *script) step(ev Event) {
	for _, o := range s.m.Step(s.now, ev, nil) {
		if o.Kind == Acquire {
			s.holds[o.ID] = o.Hold
		}
		fmt.Fprintf(&s.out, "%v: %s\n", s.now, s.show(o))
	}
}

func (s *script) show(o Out) string {
	q := s.names[o.Queue]
	switch o.Kind {
	case Pull:
		if o.Offset > 0 {
			return fmt.Sprintf("pull %d of %s after %d", o.Count, q, o.Offset)
		}
		return fmt.Sprintf("pull %d of %s", o.Count, q)
	case Flow:
		return fmt.Sprintf("flow %d of %s", o.Count, q)
	case Probe:
		return "probe " + q
	case Read:
		return fmt.Sprint("read ", o.Source)
	case Acquire:
		return fmt.Sprintf("acquire %s for %d", o.Quota.Key(o.Value), o.ID)
	case Free:
		refund := ""
		if o.Refund {
			refund = " refund"
		}
		return fmt.Sprintf("free %s of %d%s", o.Quota.Key(o.Value), o.ID, refund)
	case Send:
		var b strings.Builder
		fmt.Fprintf(&b, "send %d to %s", o.ID, o.Request.URL)
		for _, h := range o.Request.Headers {
			if h.Name != "content-type" || h.Value != "application/json" {
				fmt.Fprintf(&b, " %s=%s", h.Name, h.Value)
			}
		}
		return b.String()
	case Abort:
		return fmt.Sprint("abort ", o.ID)
	case Release:
		return fmt.Sprintf("release %d to %s: %s", o.ID, q, o.Reason)
	case Retry:
		return fmt.Sprintf("retry %d of %s after %v, count %d", o.ID, q, (o.Due - s.now).Round(time.Millisecond), o.Envelope.Internal.RetryCount)
	case Finish:
		return fmt.Sprintf("finish %d of %s: %s", o.ID, q, o.Result.Encode())
	case DeadLetter:
		return fmt.Sprintf("dead letter %d of %s", o.ID, q)
	case Take:
		return fmt.Sprintf("take %d of %s after %v", o.ID, q, o.Waited)
	case First:
		return fmt.Sprintf("first %d", o.ID)
	case Deny:
		at := ""
		if o.AtPool {
			at = " at the pool"
		}
		return fmt.Sprintf("deny %d of %s%s: %s", o.ID, q, at, o.Reason)
	case Shed:
		return fmt.Sprintf("shed %d", o.ID)
	case Gone:
		return "gone " + q
	}
	return fmt.Sprint("unknown ", o.Kind)
}

func (s *script) state() string {
	var b strings.Builder
	for _, q := range s.m.Queues(nil) {
		fmt.Fprintf(&b, "%s: depth %d, in flight %d, budget %.4g", s.names[q.Key], q.Depth, q.InFlight, q.Budget)
		if q.Removed {
			b.WriteString(", removed")
		}
		b.WriteByte('\n')
	}
	for _, g := range s.m.Gates(nil) {
		owner := "pool"
		if g.Queue != 0 {
			owner = s.names[g.Queue]
		}
		fmt.Fprintf(&b, "gate of %s [%s]: value %.4g, threshold %.4g, available %v\n", owner, g.Inference, g.Value, g.Threshold, g.Available)
	}
	fmt.Fprintf(&b, "live %d\n", s.m.Live())
	return b.String()
}
