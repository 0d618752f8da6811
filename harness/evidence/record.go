// Package evidence holds the record types of a run and the bundle in which they lie on disk.
//
// Observe, seal, then judge: environments append records, the writer seals them with hashes, and checks see nothing else. Instants
// are int64 nanoseconds since the epoch of the scenario (one epoch per played scenario); Never marks an instant that did not come.
package evidence

// Never is an instant that did not come.
const Never int64 = -1

// NotBack begins the detail of a step that waited for a part of a deployment to be there again, in vain.
const NotBack = "not there again: "

// Client endings. Each request has exactly one (INV-03).
const (
	Completed       = "completed"         // 2xx and the response ended as it should
	Refused         = "refused"           // a complete non-2xx response
	KilledMidStream = "killed-mid-stream" // 2xx headers came, then the response broke off or carried an error event
	ClientCancelled = "client-cancelled"  // the client disconnected on purpose
	TransportError  = "transport-error"   // no complete response and no cancel: connection refused, reset, protocol error
	Unfinished      = "unfinished"        // no ending when the scenario was over
)

// Client is what the client saw of one request.
type Client struct {
	Scenario  string `json:"scenario"`
	ID        string `json:"id"`        // wire.HeaderID, unique in a scenario
	Tenant    string `json:"tenant"`    // fairness id as sent, "" if none
	Objective string `json:"objective"` // objective as sent, "" if none
	Stream    bool   `json:"stream"`

	Intended   int64   `json:"intendedNs"`         // when the plan wanted it sent; latency counts from here
	Sent       int64   `json:"sentNs"`             // when it was sent
	Headers    int64   `json:"headersNs"`          // response headers received
	FirstToken int64   `json:"firstTokenNs"`       // first token event
	LastToken  int64   `json:"lastTokenNs"`        // last token event
	End        int64   `json:"endNs"`              // last byte, reset or cancel
	TokenTimes []int64 `json:"tokensNs,omitempty"` // every token event of a stream

	Outcome       string `json:"outcome"`                // one of the endings above
	Status        int    `json:"status"`                 // HTTP status, 0 if none came
	Reason        string `json:"reason"`                 // wire.HeaderDroppedReason, "" if absent
	Endpoint      string `json:"endpoint"`               // wire.HeaderServedBy of the response
	Tokens        int    `json:"tokens"`                 // completion tokens (usage, else token events)
	Events        int    `json:"events"`                 // SSE data events
	RequestBytes  int64  `json:"requestBytes"`           // body sent
	ResponseBytes int64  `json:"responseBytes"`          // body received
	BodySHA256    string `json:"bodySha256"`             // of the body sent, hex
	AnswerSHA256  string `json:"answerSha256,omitempty"` // of the body received, hex; only where it was asked for by name
	Text          string `json:"text,omitempty"`         // start of a non-2xx body, at most 300 bytes
	Error         string `json:"error,omitempty"`        // transport error
	Behind        int64  `json:"behindNs"`               // Sent - Intended
}

// Backend endings.
const (
	Finished = "finished" // the response was written to its end
	Aborted  = "aborted"  // the peer disconnected first
	Failed   = "failed"   // the server was told to fail it
	Running  = "running"  // still inside when the scenario was over
)

// Backend is what a model server saw of one request; a request that arrives twice has two records.
type Backend struct {
	Scenario       string   `json:"scenario"`
	ID             string   `json:"id"`
	Endpoint       string   `json:"endpoint"`
	Arrival        int64    `json:"arrivalNs"`
	Released       int64    `json:"releasedNs"` // when a held request was released
	FirstToken     int64    `json:"firstTokenNs"`
	End            int64    `json:"endNs"`
	Ending         string   `json:"ending"`
	Held           bool     `json:"held"`
	Stream         bool     `json:"stream"`
	PromptTokens   int      `json:"promptTokens"`
	Tokens         int      `json:"tokens"`
	Writes         int      `json:"writes,omitempty"`  // in which the tokens of a stream were sent
	Pause          int64    `json:"pauseNs,omitempty"` // the longest between two of them
	Preemptions    int      `json:"preemptions"`
	Bytes          int64    `json:"bytes"`          // body received
	BodySHA256     string   `json:"bodySha256"`     // of the body as received, hex
	JSONSHA256     string   `json:"jsonSha256"`     // of the body re-encoded with sorted keys, hex; "" if it is no JSON
	Text           string   `json:"text,omitempty"` // start of an error answer, at most 300 bytes
	ControlHeaders []string `json:"controlHeaders"` // control headers that reached the server (FC-PROTO-08)
	RequestID      string   `json:"requestId,omitempty"`
	AnswerSHA256   string   `json:"answerSha256,omitempty"` // of an answer that was asked for by name (wire.HeaderAnswer), hex
}

// Decision is one optional white-box decision of the picker.
type Decision struct {
	Scenario   string  `json:"scenario"`
	At         int64   `json:"atNs"`
	ID         string  `json:"id"`
	Kind       string  `json:"kind"` // dispatch, reject, evict
	Outcome    string  `json:"outcome"`
	Flow       string  `json:"flow"`
	Priority   int     `json:"priority"`
	Endpoint   string  `json:"endpoint"`
	Waited     int64   `json:"waitedNs"`
	Saturation float64 `json:"saturation"`
}

// Exchange is what the data plane saw between itself and the router for one request.
type Exchange struct {
	Scenario  string `json:"scenario"`
	ID        string `json:"id"`
	RequestID string `json:"requestId"` // x-request-id as it was sent to the router
	// The destination by header mutation and by load-balancer metadata, as endpoint names where they are known; "" if none came.
	HeaderDestination   string `json:"headerDestination"`
	MetadataDestination string `json:"metadataDestination"`
	First               int64  `json:"firstNs"` // first message of the router, Never if none came
}

// Sample is one polled value of a metrics page.
type Sample struct {
	Scenario string            `json:"scenario"`
	At       int64             `json:"atNs"`
	Mark     string            `json:"mark"`   // the step that asked for it
	Source   string            `json:"source"` // "router" or an endpoint name
	Name     string            `json:"name"`
	Type     string            `json:"type,omitempty"` // of the family, where the whole page was asked for
	Labels   map[string]string `json:"labels"`
	Value    float64           `json:"value"`
}

// Step is one executed step of the scenario's script: what the harness did, when, and whether its barrier was reached.
type Step struct {
	Scenario string   `json:"scenario"`
	Index    int      `json:"index"`
	Op       string   `json:"op"`
	Mark     string   `json:"mark"` // name under which checks find the step
	Start    int64    `json:"startNs"`
	End      int64    `json:"endNs"`
	OK       bool     `json:"ok"` // the barrier was reached in time
	IDs      []string `json:"ids,omitempty"`
	Detail   string   `json:"detail,omitempty"`
}

// Process is one attempt to start the system with a given configuration document.
type Process struct {
	Scenario string `json:"scenario"`
	Case     string `json:"case"`
	Started  bool   `json:"started"` // it became ready
	ExitCode int    `json:"exitCode"`
	Text     string `json:"text"` // what it printed, at most 4 KiB
	Duration int64  `json:"durationNs"`
}

// Observation is one thing seen around an Async Processor; exactly one of the parts is there.
type Observation struct {
	Scenario string       `json:"scenario"`
	At       int64        `json:"atNs"`
	Mark     string       `json:"mark,omitempty"` // the step that asked for it
	Message  *Message     `json:"message,omitempty"`
	Attempt  *Attempt     `json:"attempt,omitempty"`
	Result   *FinalResult `json:"result,omitempty"`
	Key      *BrokerKey   `json:"key,omitempty"`
	Query    *Query       `json:"query,omitempty"`
	Span     *Span        `json:"span,omitempty"`
}

// Message is one request that the harness put into a queue, at Observation.At.
type Message struct {
	ID       string `json:"id"`
	Queue    string `json:"queue"`
	Deadline int64  `json:"deadlineNs"` // since the scenario's epoch; Never where the message has none that can be read
}

// Endings of an attempt, as the upstream saw it.
const (
	Answered  = "answered" // a whole answer was written
	BrokenOff = "cut"      // the upstream was told to break off
	Dropped   = "dropped"  // the processor closed the connection first
	Inside    = "inside"   // still inside when the scenario was over
)

// Attempt is one HTTP request that reached an upstream, at Observation.At.
type Attempt struct {
	ID       string              `json:"id"`
	Upstream string              `json:"upstream"`
	Nth      int                 `json:"nth"` // of this id, from 1
	End      int64               `json:"endNs"`
	Ending   string              `json:"ending"`
	Status   int                 `json:"status"` // that was answered, 0 if none
	Method   string              `json:"method"`
	URI      string              `json:"uri"`
	Host     string              `json:"host"`
	Headers  map[string][]string `json:"headers"`            // names in lower case
	Body     string              `json:"body"`               // at most 64 KiB
	Reason   string              `json:"reason,omitempty"`   // wire.HeaderDroppedReason of the answer, where it was seen from the processor's side
	PeerCert string              `json:"peerCert,omitempty"` // subject of the client's certificate
}

// FinalResult is one record of a result list, channel or topic, at Observation.At.
type FinalResult struct {
	List    string `json:"list"`
	ID      string `json:"id"`
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Payload string `json:"payload"`
	Raw     string `json:"raw"`
}

// BrokerKey is the state of one key of the broker. Names that begin with a colon are facts: ":connections" of the broker that are open,
// ":accepted" all that were made, ":subscribers", ":handshakes" at upstreams that failed, ":cpu" of the processor in ms, ":collector" at the
// default address, ":queries TEXT" and ":fetches TEXT" of what gates read since it was set last.
type BrokerKey struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"` // none, string, list, zset, hash, fact; "": it cannot be known
	Size    int64    `json:"size"`
	TTL     int64    `json:"ttlNs"` // Never: none
	Value   string   `json:"value,omitempty"`
	Members []string `json:"members,omitempty"` // at most 1,000
}

// Query is one PromQL query that reached the Prometheus stand-in.
type Query struct {
	Text   string `json:"text"`
	Status int    `json:"status"`
}

// Span is one exported span.
type Span struct {
	Trace      string            `json:"trace"`
	ID         string            `json:"id"`
	Parent     string            `json:"parent"`
	Name       string            `json:"name"`
	Service    string            `json:"service"`
	Attributes map[string]string `json:"attributes"`
	Links      []string          `json:"links,omitempty"` // trace ids
}
