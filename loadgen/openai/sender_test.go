package openai

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
)

const chat = `data: {"choices":[{"delta":{"role":"assistant","content":""}}],"usage":null}

: keep-alive

data: {"choices":[{"delta":{"content":"Hel"}}]}

data: {"choices":[{"delta":{"content":"lo"}}]}

data: {"choices":[{"delta":{"content":""},"finish_reason":"stop"}]}

`
const usageAndDone = `data: {"choices":[],"usage":{"completion_tokens":7}}

data: [DONE]

`

// start serves h and returns a sender for it.
func start(t *testing.T, h http.HandlerFunc) *Sender {
	t.Helper()
	srv := httptest.NewServer(h)
	client := NewClient(10)
	t.Cleanup(func() {
		client.CloseIdleConnections()
		srv.CloseClientConnections()
		srv.Close()
	})
	return &Sender{Client: client, Clock: clock.NewReal(), BaseURL: srv.URL}
}

func sse(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", "text/event-stream; charset=utf-8")
		io.WriteString(w, body)
	}
}

func request(stream bool) Request {
	body := BuildBody("/v1/chat/completions", "m", 5, 7, stream, 0)
	return Request{Scenario: "s", ID: "r1", Tenant: "t", FairnessID: "gold", Objective: "fast", Path: "/v1/chat/completions", Body: body, Stream: stream}
}

func TestEveryEnding(t *testing.T) {
	for _, row := range []struct {
		why     string
		stream  bool
		handler http.HandlerFunc
		want    evidence.Client // Outcome, Status, Tokens, Events, Reason, Text
		err     string          // contained in Error
	}{
		{"a whole stream", true, sse(chat + usageAndDone), evidence.Client{Outcome: evidence.Completed, Status: 200, Tokens: 7, Events: 6}, ""},
		{"a stream without usage counts its token events", true, sse(chat + "data: [DONE]\n\n"),
			evidence.Client{Outcome: evidence.Completed, Status: 200, Tokens: 2, Events: 5}, ""},
		{"CRLF all over", true, sse(strings.ReplaceAll(chat+usageAndDone, "\n", "\r\n")),
			evidence.Client{Outcome: evidence.Completed, Status: 200, Tokens: 7, Events: 6}, ""},
		{"completion chunks, reasoning and tool calls are tokens", true, sse("data: {\"choices\":[{\"text\":\"a\"}]}\n\n" +
			"data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"b\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"tool_calls\":[{}]}}]}\n\ndata: [DONE]\n\n"),
			evidence.Client{Outcome: evidence.Completed, Status: 200, Tokens: 3, Events: 4}, ""},
		{"a stream that ends without [DONE]", true, sse(chat), evidence.Client{Outcome: evidence.KilledMidStream, Status: 200, Tokens: 2, Events: 4}, "without [DONE]"},
		{"[DONE] whose blank line is missing", true, sse(chat + "data: [DONE]\n"),
			evidence.Client{Outcome: evidence.KilledMidStream, Status: 200, Tokens: 2, Events: 4}, "without [DONE]"},
		{"a stream that breaks off", true, func(w http.ResponseWriter, r *http.Request) {
			sse(chat)(w, r)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, evidence.Client{Outcome: evidence.KilledMidStream, Status: 200, Tokens: 2, Events: 4}, "EOF"},
		{"a break after [DONE] is a break", true, func(w http.ResponseWriter, r *http.Request) {
			sse(chat+usageAndDone)(w, r)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, evidence.Client{Outcome: evidence.KilledMidStream, Status: 200, Tokens: 7, Events: 6}, "EOF"},
		{"an error event before [DONE]", true, sse(chat + "data: {\"error\":{\"message\":\"evicted\",\"code\":429}}\n\ndata: [DONE]\n\n"),
			evidence.Client{Outcome: evidence.KilledMidStream, Status: 200, Tokens: 2, Events: 6}, "evicted"},
		{"an event named error", true, sse("event: error\ndata: {\"detail\":\"gone\"}\n\ndata: [DONE]\n\n"),
			evidence.Client{Outcome: evidence.KilledMidStream, Status: 200, Events: 2}, "gone"},
		{"an event that is no JSON", true, sse(chat + "data: {\"choi\n\ndata: [DONE]\n\n"),
			evidence.Client{Outcome: evidence.KilledMidStream, Status: 200, Tokens: 2, Events: 6}, "event 5: no OpenAI JSON"},
		{"garbage in place of a stream", true, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>\x00\xff") },
			evidence.Client{Outcome: evidence.KilledMidStream, Status: 200}, `content type "text/html`},
		{"an endless line", true, sse("data: " + strings.Repeat("x", maxLine)), evidence.Client{Outcome: evidence.KilledMidStream, Status: 200}, "longer than"},
		{"a whole JSON answer", false, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"choices":[{"message":{"content":"hi"}}],"usage":{"completion_tokens":9}}`)
		}, evidence.Client{Outcome: evidence.Completed, Status: 200, Tokens: 9}, ""},
		{"a JSON answer cut off", false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("content-length", "100")
			io.WriteString(w, `{"choices":[`)
		}, evidence.Client{Outcome: evidence.KilledMidStream, Status: 200}, "EOF"},
		{"a 200 that is no JSON", false, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") },
			evidence.Client{Outcome: evidence.KilledMidStream, Status: 200}, "no OpenAI JSON"},
		{"a 200 that reports an error", false, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"object":"error","message":"bad"}`)
		}, evidence.Client{Outcome: evidence.KilledMidStream, Status: 200}, "bad"},
		{"a refusal with its reason", true, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(wire.HeaderDroppedReason, wire.ReasonSaturated)
			w.WriteHeader(429)
			io.WriteString(w, strings.Repeat("é", 200))
		}, evidence.Client{Outcome: evidence.Refused, Status: 429, Reason: wire.ReasonSaturated, Text: strings.Repeat("é", 150)}, ""},
		{"a redirect is not followed", false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("location", "/elsewhere")
			w.WriteHeader(307)
		}, evidence.Client{Outcome: evidence.Refused, Status: 307}, ""},
		{"a refusal cut off", false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("content-length", "100")
			w.WriteHeader(503)
			io.WriteString(w, "no end")
		}, evidence.Client{Outcome: evidence.TransportError, Status: 503, Text: "no end"}, "EOF"},
		{"no response at all", false, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			evidence.Client{Outcome: evidence.TransportError}, "EOF"},
	} {
		t.Run(row.why, func(t *testing.T) {
			s := start(t, row.handler)
			got := s.Do(context.Background(), request(row.stream), nil)
			if got.Outcome != row.want.Outcome || got.Status != row.want.Status || got.Tokens != row.want.Tokens ||
				got.Events != row.want.Events || got.Reason != row.want.Reason || got.Text != row.want.Text {
				t.Errorf("got %+v\nwant %+v", got, row.want)
			}
			if !strings.Contains(got.Error, row.err) || (row.err == "") != (got.Error == "") {
				t.Errorf("error %q, want it to contain %q", got.Error, row.err)
			}
			checkInstants(t, got)
		})
	}
}

// checkInstants checks the order of the instants and that those which did not come are Never.
func checkInstants(t *testing.T, c evidence.Client) {
	t.Helper()
	if c.End < c.Sent || c.Sent < 0 || c.Behind != c.Sent-c.Intended {
		t.Errorf("sent %d, end %d, behind %d", c.Sent, c.End, c.Behind)
	}
	if (c.Headers == evidence.Never) != (c.Status == 0) {
		t.Errorf("status %d with headers at %d", c.Status, c.Headers)
	}
	if len(c.TokenTimes) == 0 {
		if c.FirstToken != evidence.Never || c.LastToken != evidence.Never {
			t.Errorf("no tokens, but first at %d, last at %d", c.FirstToken, c.LastToken)
		}
		return
	}
	if c.FirstToken != c.TokenTimes[0] || c.LastToken != c.TokenTimes[len(c.TokenTimes)-1] || c.FirstToken < c.Headers || c.End < c.LastToken {
		t.Errorf("instants out of order: %+v", c)
	}
}

func TestTheWireCarriesWhatIsRecorded(t *testing.T) {
	var seen http.Header
	var body []byte
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		body, _ = io.ReadAll(r.Body)
		w.Header().Set(wire.HeaderServedBy, "m-1")
		sse(chat+usageAndDone)(w, r)
	})
	s.BaseURL += "/"
	r := request(true)
	r.Headers = map[string]string{wire.HeaderPassHold: "1", wire.HeaderObjective: ""}
	r.Intended = time.Hour // nothing waits for it
	got := s.Do(context.Background(), r, nil)
	for name, want := range map[string]string{
		"content-type": "application/json", wire.HeaderID: "r1", wire.HeaderScenario: "s", wire.HeaderFairnessID: "gold", wire.HeaderPassHold: "1", wire.HeaderObjective: "",
	} {
		if v := seen.Values(name); len(v) != 1 || v[0] != want {
			t.Errorf("header %s is %q, want %q", name, v, want)
		}
	}
	if v := seen.Values("accept-encoding"); len(v) != 0 {
		t.Errorf("asks for compression: %q", v)
	}
	sum := sha256.Sum256(body)
	if got.BodySHA256 != hex.EncodeToString(sum[:]) || got.RequestBytes != int64(len(body)) || got.ResponseBytes != int64(len(chat+usageAndDone)) {
		t.Errorf("bytes or hash are wrong: %+v", got)
	}
	if got.Endpoint != "m-1" || got.Tenant != "gold" || got.Objective != "" || got.Scenario != "s" || got.Behind >= 0 {
		t.Errorf("record %+v", got)
	}
	r.FairnessID, r.Objective, r.Headers = "", "", nil
	s.Do(context.Background(), r, nil)
	if len(seen.Values(wire.HeaderFairnessID)) != 0 || len(seen.Values(wire.HeaderObjective)) != 0 {
		t.Error("an empty fairness id or objective is sent")
	}
}

func TestEveryTokenIsStampedAndTold(t *testing.T) {
	next := make(chan struct{})
	s := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"%d\"}]}\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
		io.WriteString(w, "data: [DONE]\n\n")
	})
	var steps []ProgressKind
	got := s.Do(context.Background(), request(true), func(p Progress) {
		steps = append(steps, p.Kind)
		if p.Kind == GotToken {
			next <- struct{}{} // the server goes on only now, so each token comes in a read of its own
		}
	})
	if want := fmt.Sprint([]ProgressKind{SentRequest, GotHeaders, GotToken, GotToken, GotToken}); fmt.Sprint(steps) != want {
		t.Errorf("progress %v, want %v", steps, want)
	}
	if len(got.TokenTimes) != 3 || got.TokenTimes[0] >= got.TokenTimes[1] || got.TokenTimes[1] >= got.TokenTimes[2] || got.Tokens != 3 {
		t.Errorf("token times %v", got.TokenTimes)
	}
}

func TestByteByByteOnTheWire(t *testing.T) {
	s := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", "text/event-stream")
		for _, b := range []byte(strings.ReplaceAll(chat+usageAndDone, "\n", "\r\n")) {
			w.Write([]byte{b})
			w.(http.Flusher).Flush()
		}
	})
	if got := s.Do(context.Background(), request(true), nil); got.Outcome != evidence.Completed || got.Tokens != 7 || len(got.TokenTimes) != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestWhoEndedItIsTakenFromTheContext(t *testing.T) {
	hang := func(sendHeaders bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // only then does the server watch for a disconnect
			if sendHeaders {
				sse("data: {\"choices\":[{\"text\":\"a\"}]}\n\n")(w, r)
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		}
	}
	for _, row := range []struct {
		why     string
		headers bool
		cause   error
		outcome string
		err     string
	}{
		{"planned, before the headers", false, ErrCancelled, evidence.ClientCancelled, ""},
		{"planned, mid-stream", true, ErrCancelled, evidence.ClientCancelled, ""},
		{"planned, wrapped", true, fmt.Errorf("step 4: %w", ErrCancelled), evidence.ClientCancelled, ""},
		{"out of time, before the headers", false, context.DeadlineExceeded, evidence.TransportError, "timed out"},
		{"out of time, mid-stream", true, context.DeadlineExceeded, evidence.TransportError, "timed out"},
		{"the run was stopped", true, io.ErrClosedPipe, evidence.TransportError, "stopped: io: read/write on closed pipe"},
		{"cancelled without a cause", false, nil, evidence.TransportError, "stopped: context canceled"},
	} {
		t.Run(row.why, func(t *testing.T) {
			s := start(t, hang(row.headers))
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			got := s.Do(ctx, request(true), func(p Progress) {
				if p.Kind == GotToken || !row.headers && p.Kind == SentRequest {
					cancel(row.cause)
				}
			})
			if got.Outcome != row.outcome || got.Error != row.err || row.headers != (got.Status == 200) {
				t.Errorf("got %+v", got)
			}
			checkInstants(t, got)
		})
	}
	t.Run("a real deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		if got := start(t, hang(false)).Do(ctx, request(true), nil); got.Outcome != evidence.TransportError || got.Error != "timed out" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("a cancel after the end changes nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(context.Background())
		got := start(t, sse(chat+usageAndDone)).Do(ctx, request(true), nil)
		cancel(ErrCancelled)
		if got.Outcome != evidence.Completed {
			t.Errorf("got %+v", got)
		}
	})
}

func TestConnectionRefusedAndBadURL(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s := &Sender{Client: NewClient(1), Clock: clock.NewReal(), BaseURL: "http://" + l.Addr().String()}
	if got := s.Do(context.Background(), request(false), nil); got.Outcome != evidence.TransportError || !strings.Contains(got.Error, "refused") {
		t.Errorf("got %+v", got)
	}
	s.BaseURL = "http://bad host"
	if got := s.Do(context.Background(), request(false), nil); got.Outcome != evidence.TransportError || got.Sent != evidence.Never || got.End < 0 {
		t.Errorf("got %+v", got)
	}
}

// TestNothingIsSentTwice has the server close a kept connection under the second request. A client that retries would make three.
func TestNothingIsSentTwice(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var arrivals atomic.Int32
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(conn)
			for {
				req, err := http.ReadRequest(in)
				if err != nil {
					break
				}
				io.Copy(io.Discard, req.Body)
				if arrivals.Add(1) != 1 {
					break
				}
				io.WriteString(conn, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
			}
			conn.Close()
		}
	}()
	s := &Sender{Client: NewClient(1), Clock: clock.NewReal(), BaseURL: "http://" + l.Addr().String()}
	first, second := s.Do(context.Background(), request(false), nil), s.Do(context.Background(), request(false), nil)
	if first.Outcome != evidence.Completed || second.Outcome != evidence.TransportError || arrivals.Load() != 2 {
		t.Errorf("%s, %s, %d arrivals", first.Outcome, second.Outcome, arrivals.Load())
	}
}

func TestBodies(t *testing.T) {
	type message struct{ Role, Content string }
	type decoded struct {
		Model         string
		Prompt        string
		Messages      []message
		MaxTokens     int `json:"max_tokens"`
		Stream        bool
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		for _, size := range []int{0, 1, 100, 180, 181, 500, 1 << 20} {
			for _, stream := range []bool{false, true} {
				b := BuildBody(path, `m"1`, 25, 7, stream, size)
				var d decoded
				if err := json.Unmarshal(b, &d); err != nil {
					t.Fatalf("%s: %v", b, err)
				}
				prompt := d.Prompt
				if len(d.Messages) == 1 {
					prompt = d.Messages[0].Content
				}
				if d.Model != `m"1` || d.MaxTokens != 7 || d.Stream != stream || d.StreamOptions.IncludeUsage != stream {
					t.Errorf("%s", b)
				}
				if size > 150 && len(b) != size || size > 300 && len(prompt) != 100 || size == 0 && len(prompt) != 100 || size == 1 && prompt != "" {
					t.Errorf("size %d: %d bytes, prompt of %d: %.200s", size, len(b), len(prompt), b)
				}
			}
		}
	}
	a, b := Body{PromptTokens: 8, Seed: "a"}.Build(), Body{PromptTokens: 8, Seed: "b"}.Build()
	if string(a) == string(b) || string(a) != string(Body{PromptTokens: 8, Seed: "a"}.Build()) {
		t.Error("prompts differ by seed and by nothing else")
	}
}
