package scenario

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
)

// Async writes a scenario of an Async Processor down. Marks are the first argument of what makes a step.
type Async struct {
	Profile profile.Processor
	b       *Builder
}

// Of makes the Write function of a scenario of a processor; a contract of routers leaves it without checks.
func Of(write func(a *Async)) func(*Builder) {
	return func(b *Builder) {
		if b.Profile.Processor != nil {
			write(&Async{Profile: *b.Profile.Processor, b: b})
		}
	}
}

// Doc is a transport document, or a part of one.
type Doc map[string]any

// With is d with further fields; nil takes one away.
func (d Doc) With(more Doc) Doc {
	out := maps.Clone(d)
	for k, v := range more {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

// JSON is the text of d.
func (d Doc) JSON() string {
	raw, err := json.Marshal(d)
	if err != nil {
		panic(fmt.Sprintf("document: %v", err)) // literals only
	}
	return string(raw)
}

// Queue is an entry of queues: its name and upstream a.
func Queue(name string) Doc { return Doc{"queue_name": name, "igw_base_url": "$UPSTREAM_a"} }

// Gated is an entry of queues with a gate.
func Gated(name, gate string, params Doc) Doc {
	return Queue(name).With(Doc{"gate_type": gate, "gate_params": params})
}

// Names of the keys of "ss".
const (
	RetrySet   = "retry"
	ResultList = "results"
)

// Transport is the document of "ss" (spec/requirements.md, "Reading the columns"): polls of 10 every 100 ms, own retry set and result list.
func Transport(queues ...Doc) Doc {
	return Doc{"url": "redis://$BROKER", "retry_queue_name": RetrySet, "result_queue_name": ResultList, "poll_interval_ms": 100, "batch_size": 10, "queues": queues}
}

// Setup starts a processor with a document and further flags.
func Setup(d Doc, flags ...string) *sut.AsyncSetup {
	return &sut.AsyncSetup{Config: d.JSON(), Flags: flags}
}

// Files adds files to a setup: name, content, name, content, ... In flags and documents a file is $FILE_name.
func Files(s *sut.AsyncSetup, files ...string) *sut.AsyncSetup {
	c := *s
	c.Files = maps.Clone(s.Files)
	if c.Files == nil {
		c.Files = map[string]string{}
	}
	for i := 0; i+1 < len(files); i += 2 {
		c.Files[files[i]] = files[i+1]
	}
	return &c
}

// Pools is a pool file.
func Pools(pools ...Doc) string {
	raw, err := json.Marshal(pools)
	if err != nil {
		panic(fmt.Sprintf("pools: %v", err))
	}
	return string(raw)
}

// WithPools starts a processor with a pool file.
func WithPools(d Doc, pools []Doc, flags ...string) *sut.AsyncSetup {
	return Files(Setup(d, append([]string{"--pool-config-file", "$FILE_pools"}, flags...)...), "pools", Pools(pools...))
}

// Policy is a merge policy file.
func Policy(kind string, params Doc) string { return Doc{"type": kind, "parameters": params}.JSON() }

// WithPolicy starts a processor with a merge policy.
func WithPolicy(s *sut.AsyncSetup, kind string, params Doc) *sut.AsyncSetup {
	s = Files(s, "policy", Policy(kind, params))
	s.Flags = append(append([]string(nil), s.Flags...), "--request-merge-policy-config-file", "$FILE_policy")
	return s
}

// Do adds a step.
func (a *Async) Do(s sut.AsyncStep) { a.b.async = append(a.b.async, s) }

// Serve starts processor p, takes results from the list of "ss" from now on, and waits until it is ready.
func (a *Async) Serve(s *sut.AsyncSetup) {
	a.Listen(ResultList)
	a.Start("up", s)
}

// Start starts processor p and waits until it is ready.
func (a *Async) Start(mark string, s *sut.AsyncSetup) {
	a.Do(sut.AsyncStep{Op: sut.AsyncStart, Mark: mark, Setup: s})
}

// StartOther starts another processor.
func (a *Async) StartOther(mark, who string, s *sut.AsyncSetup) {
	a.Do(sut.AsyncStep{Op: sut.AsyncStart, Mark: mark, Who: who, Setup: s})
}

// Listen takes results from a list from now on.
func (a *Async) Listen(list string) { a.Do(sut.AsyncStep{Op: sut.AsyncListen, List: list}) }

// MessageOption changes a message.
type MessageOption func(*sut.AsyncMessage)

// Message is one message.
func Message(id string, opts ...MessageOption) sut.AsyncMessage {
	m := sut.AsyncMessage{ID: id}
	for _, o := range opts {
		o(&m)
	}
	return m
}

// Messages are n messages: prefix0, prefix1, ...
func Messages(prefix string, n int, opts ...MessageOption) []sut.AsyncMessage {
	var out []sut.AsyncMessage
	for i := range n {
		out = append(out, Message(fmt.Sprintf("%s%d", prefix, i), opts...))
	}
	return out
}

// Due sets a deadline, from the submission on.
func Due(d time.Duration) MessageOption { return func(m *sut.AsyncMessage) { m.Deadline = d } }

// User sets the metadata userid.
func User(id string) MessageOption { return Meta("userid", id) }

// Meta sets one entry of the metadata.
func Meta(key, value string) MessageOption {
	return func(m *sut.AsyncMessage) {
		m.Metadata = maps.Clone(m.Metadata)
		if m.Metadata == nil {
			m.Metadata = map[string]string{}
		}
		m.Metadata[key] = value
	}
}

// Head sets one header of the message.
func Head(key, value string) MessageOption {
	return func(m *sut.AsyncMessage) {
		m.Headers = maps.Clone(m.Headers)
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[key] = value
	}
}

// Payload sets the payload.
func Payload(json string) MessageOption { return func(m *sut.AsyncMessage) { m.Payload = json } }

// Submit puts messages into a queue.
func (a *Async) Submit(mark, queue string, ms ...sut.AsyncMessage) {
	a.Do(sut.AsyncStep{Op: sut.AsyncSubmit, Mark: mark, Queue: queue, Messages: ms})
}

// Answer sets how upstreams answer from now on.
func (a *Async) Answer(rules ...sut.AsyncReply) {
	a.Do(sut.AsyncStep{Op: sut.AsyncAnswer, Answers: rules})
}

// Hold makes the upstreams hold the requests of some ids (none: all).
func (a *Async) Hold(ids ...string) { a.Answer(sut.AsyncReply{IDs: ids, Hold: true}) }

// Statuses is a rule: the attempts of each id are answered so in turn, the last one repeats.
func Statuses(ids []string, statuses ...int) sut.AsyncReply {
	return sut.AsyncReply{IDs: ids, Statuses: statuses}
}

// Arrive waits for n attempts of some ids.
func (a *Async) Arrive(mark string, n int, ids ...string) {
	a.Do(sut.AsyncStep{Op: sut.AsyncArrive, Mark: mark, Count: n, IDs: ids})
}

// Held waits until n requests of some ids are held, and watches for quiet.
func (a *Async) Held(mark string, n int, quiet time.Duration, ids ...string) {
	a.Do(sut.AsyncStep{Op: sut.AsyncHeld, Mark: mark, Count: n, Quiet: quiet, IDs: ids})
}

// Release lets n held requests of some ids go; 0: all.
func (a *Async) Release(mark string, n int, ids ...string) {
	a.Do(sut.AsyncStep{Op: sut.AsyncRelease, Mark: mark, Count: n, IDs: ids})
}

// Results waits for n results of some ids, at most for limit (0: ten seconds).
func (a *Async) Results(mark string, n int, limit time.Duration, ids ...string) {
	a.Do(sut.AsyncStep{Op: sut.AsyncResults, Mark: mark, Count: n, Limit: limit, IDs: ids})
}

// Quiet watches.
func (a *Async) Quiet(mark string, d time.Duration) {
	a.Do(sut.AsyncStep{Op: sut.AsyncQuiet, Mark: mark, Quiet: d})
}

// Set sets a key of the broker; "" deletes it.
func (a *Async) Set(mark, key, value string) {
	a.Do(sut.AsyncStep{Op: sut.AsyncSet, Mark: mark, Keys: map[string]string{key: value}})
}

// Size waits until some keys together have n elements; mode "", "least" or "most".
func (a *Async) Size(mark, mode string, n int, keys ...string) {
	a.Do(sut.AsyncStep{Op: sut.AsyncSize, Mark: mark, Mode: mode, Count: n, Names: keys})
}

// Look records the state of some keys.
func (a *Async) Look(mark string, keys ...string) {
	a.Do(sut.AsyncStep{Op: sut.AsyncLook, Mark: mark, Names: keys})
}

// Places are the keys in which messages of a queue lie: the set, the retry set, the claims.
func Places(queue string) []string { return []string{queue, RetrySet, queue + ":claimed"} }

// Series sets the page of the Prometheus.
func (a *Async) Series(mark, text string) {
	a.Do(sut.AsyncStep{Op: sut.AsyncSeries, Mark: mark, Text: text})
}

// Page sets the page that gates scrape.
func (a *Async) Page(mark, text string) {
	a.Do(sut.AsyncStep{Op: sut.AsyncPage, Mark: mark, Text: text})
}

// Scrape reads the metrics page.
func (a *Async) Scrape(mark string) { a.Do(sut.AsyncStep{Op: sut.AsyncScrape, Mark: mark}) }

// ScrapeUntil reads the metrics page until it shows a value.
func (a *Async) ScrapeUntil(mark string, v sut.AsyncValue) {
	a.Do(sut.AsyncStep{Op: sut.AsyncScrape, Mark: mark, Until: &v})
}

// Signal sends a signal to p.
func (a *Async) Signal(mark, name string) {
	a.Do(sut.AsyncStep{Op: sut.AsyncSignal, Mark: mark, Signal: name})
}

// Ended waits until p has ended.
func (a *Async) Ended(mark string, limit time.Duration) {
	a.Do(sut.AsyncStep{Op: sut.AsyncEnded, Mark: mark, Limit: limit})
}

// Broker does something to the broker: pause, resume, down, up, cut, broken.
func (a *Async) Broker(mark, mode string) {
	a.Do(sut.AsyncStep{Op: sut.AsyncBroker, Mark: mark, Mode: mode})
}

// Get asks a URL.
func (a *Async) Get(mark, url, until string, limit time.Duration) {
	a.Do(sut.AsyncStep{Op: sut.AsyncGet, Mark: mark, Text: url, Mode: until, Limit: limit})
}

// Try starts processors, each for one case.
func (a *Async) Try(mark string, cases ...sut.AsyncTrial) {
	a.Do(sut.AsyncStep{Op: sut.AsyncTry, Mark: mark, Tries: cases})
}

// Case is one start of a matrix.
func Case(name string, s *sut.AsyncSetup) sut.AsyncTrial {
	return sut.AsyncTrial{Case: name, Setup: *s}
}

// Check judges a requirement; engaged are marks of steps whose barriers must have been reached.
func (a *Async) Check(requirement, check string, p checks.Async, engaged ...string) {
	a.b.checks = append(a.b.checks, checks.Spec{Requirement: requirement, Check: check, Async: &p, Engaged: engaged})
}
