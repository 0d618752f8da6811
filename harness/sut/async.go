package sut

import "time"

// AsyncOp is what a step does to an Async Processor or to what surrounds it: a broker, HTTP upstreams in the place of the gateway, a
// Prometheus and a metrics page with scripted values, a trace collector.
type AsyncOp string

// The operations. Each barrier has a limit (Limit, or ten seconds) after which it has failed.
const (
	AsyncStart    AsyncOp = "start"    // start processor Who with Setup; wait until it is Mode: "ready" (default), "alive" (answers, not ready), "ended"
	AsyncSignal   AsyncOp = "signal"   // send Signal (TERM, KILL, STOP, CONT) to Who
	AsyncEnded    AsyncOp = "ended"    // wait until Who has ended
	AsyncTry      AsyncOp = "try"      // start a processor for each of Tries, side by side, and record whether it became ready or ended
	AsyncSubmit   AsyncOp = "submit"   // put Messages into Queue; Mode "" (sorted set), "channel", "pubsub"
	AsyncCancel   AsyncOp = "cancel"   // withdraw the messages IDs as their producer does
	AsyncListen   AsyncOp = "listen"   // take results from List from now on; Mode "" (list), "channel", "pubsub"
	AsyncTopics   AsyncOp = "topics"   // create on the Pub/Sub server topic Queue with a subscription of that name; Mode "dead-letter": with a dead-letter policy
	AsyncAnswer   AsyncOp = "answer"   // the upstreams answer as Answers say from now on
	AsyncRelease  AsyncOp = "release"  // let Count of the requests held for IDs go (0: all of them), the oldest first
	AsyncArrive   AsyncOp = "arrive"   // wait until Count attempts for IDs have arrived
	AsyncHeld     AsyncOp = "held"     // wait until Count requests for IDs are held, then watch for Quiet
	AsyncStep1    AsyncOp = "step"     // Count times: release the oldest held request and wait for the next arrival
	AsyncResults  AsyncOp = "results"  // wait until Count results of IDs were taken
	AsyncQuiet    AsyncOp = "quiet"    // watch for Quiet; evidence only
	AsyncSet      AsyncOp = "set"      // set keys of the broker: "" deletes; Mode "list" pushes one element, which makes the type wrong
	AsyncSize     AsyncOp = "size"     // wait until the sizes of the keys Names together are Count (Mode "least": at least, "most": at most), and record their state
	AsyncLook     AsyncOp = "look"     // record the state of the keys Names
	AsyncSeries   AsyncOp = "series"   // the Prometheus has the page Text from now on; Mode "error500" lets it fail, "" heals it
	AsyncPage     AsyncOp = "page"     // the metrics page is Text from now on; "" answers 404
	AsyncScrape   AsyncOp = "scrape"   // read the metrics page of Who; with Until: again and again until it shows that, at most for Limit
	AsyncWatch    AsyncOp = "watch"    // a Prometheus reads the metrics page of Who five times a second from now on
	AsyncAsk      AsyncOp = "ask"      // ask it the queries Keys (name -> PromQL) until each has a value; a look at key ":promql NAME" has how many
	AsyncGet      AsyncOp = "get"      // GET Text (a URL with tokens) and record status and body; with Mode, wait for that status
	AsyncFile     AsyncOp = "file"     // write file List of the folder of Who anew with Text
	AsyncOutput   AsyncOp = "output"   // wait until Who has printed a line with one of Names, in any case, since its file was last written
	AsyncBroker   AsyncOp = "broker"   // Mode "pause", "resume", "down", "up", "cut" (close what is open), "broken" (close whatever connects)
	AsyncUpstream AsyncOp = "upstream" // Upstream listens (Mode "up") or not (Mode "down")
	AsyncLoad     AsyncOp = "load"     // Mode of fault Signal to Who after a number of results drawn from Count, then start it again: one round
)

// AsyncStep is one step. IDs are ids, or prefixes that end with an asterisk; none means all.
type AsyncStep struct {
	Op       AsyncOp           `json:"op"`
	Mark     string            `json:"mark,omitempty"`
	Who      string            `json:"who,omitempty"` // "": p
	Setup    *AsyncSetup       `json:"setup,omitempty"`
	Tries    []AsyncTrial      `json:"tries,omitempty"`
	Signal   string            `json:"signal,omitempty"`
	Queue    string            `json:"queue,omitempty"`
	List     string            `json:"list,omitempty"`
	Messages []AsyncMessage    `json:"messages,omitempty"`
	Answers  []AsyncReply      `json:"answers,omitempty"`
	IDs      []string          `json:"ids,omitempty"`
	Upstream string            `json:"upstream,omitempty"`
	Names    []string          `json:"names,omitempty"`
	Count    int               `json:"count,omitempty"`
	Quiet    time.Duration     `json:"quietNs,omitempty"`
	Limit    time.Duration     `json:"limitNs,omitempty"`
	Keys     map[string]string `json:"keys,omitempty"`
	Text     string            `json:"text,omitempty"`
	Mode     string            `json:"mode,omitempty"`
	Until    *AsyncValue       `json:"until,omitempty"`
}

// AsyncValue is a value that a series must show.
type AsyncValue struct {
	Name   string            `json:"name"` // without the prefix llm_d_async_
	Labels map[string]string `json:"labels,omitempty"`
	Min    float64           `json:"min"`
	Max    float64           `json:"max"`
}

// AsyncSetup is how a processor is started. Texts may hold tokens: $BROKER, $BROKER2 and, with TLS, $TLSBROKER (host:port), $UPSTREAM_a, $UPSTREAM_b, $TLS_a,
// $MTLS_a (URLs), $PROM, $PAGE, $OTLP (URLs), $PUBSUB (host:port), $FILE_name, $NOBODY (host:port where nobody listens).
type AsyncSetup struct {
	Transport string            `json:"transport,omitempty"` // "": redis-sortedset; "none": the flag is left out
	Config    string            `json:"config,omitempty"`    // transport document; "": the flag is left out
	Inline    bool              `json:"inline,omitempty"`    // it is given with --transport-config
	Flags     []string          `json:"flags,omitempty"`     // further flags
	Without   []string          `json:"without,omitempty"`   // flags of the command that are left out
	Files     map[string]string `json:"files,omitempty"`     // name -> content
	Env       map[string]string `json:"env,omitempty"`
}

// AsyncTrial is one attempt to start.
type AsyncTrial struct {
	Case  string     `json:"case"`
	Setup AsyncSetup `json:"setup"`
}

// AsyncMessage is one request to be submitted.
type AsyncMessage struct {
	ID       string            `json:"id"`
	Deadline time.Duration     `json:"deadlineNs,omitempty"` // from its submission, up to the next whole second; 0: a minute
	Late     string            `json:"late,omitempty"`       // JSON text in the place of the deadline
	Payload  string            `json:"payload,omitempty"`    // JSON; "": a small completion request with the id as field weir_id
	Metadata map[string]string `json:"metadata,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Endpoint string            `json:"endpoint,omitempty"` // may hold tokens, also $ADDRESS_b: host:port of upstream b
	Labels   map[string]string `json:"labels,omitempty"`   // internal.labels
	Created  string            `json:"created,omitempty"`
	NoToken  bool              `json:"noToken,omitempty"`
	// Member is the whole member in the place of an envelope; $ID and $DEADLINE are filled in.
	Member string `json:"member,omitempty"`
}

// AsyncReply is how upstreams answer the requests it matches; the first match counts, and what matches none gets 200.
type AsyncReply struct {
	IDs      []string          `json:"ids,omitempty"`
	Upstream string            `json:"upstream,omitempty"`
	Statuses []int             `json:"statuses,omitempty"` // of the attempts of one id in turn; the last one repeats; none: 200
	Delay    time.Duration     `json:"delayNs,omitempty"`
	Hold     bool              `json:"hold,omitempty"` // until it is released or the processor goes away
	Headers  map[string]string `json:"headers,omitempty"`
	Body     string            `json:"body,omitempty"` // "": a completion with usage 7 and 11
	Mode     string            `json:"mode,omitempty"` // "reset": no answer; "cut": half the body
}
