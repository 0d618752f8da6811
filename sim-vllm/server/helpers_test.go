package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/sim-vllm/presets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a server on a real socket.
type fixture struct {
	*Server
	t      *testing.T
	url    string
	client *http.Client
	events chan struct{}
}

func start(t *testing.T, edit func(*Config)) *fixture {
	t.Helper()
	engine, err := presets.Get(presets.Instant)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, events: make(chan struct{}, 1)}
	c := Config{Name: "ep-1", Engine: engine, OnEvent: func() {
		select {
		case f.events <- struct{}{}:
		default:
		}
	}}
	if edit != nil {
		edit(&c)
	}
	if f.Server, err = New(c); err != nil {
		t.Fatal(err)
	}
	f.Start()
	h := httptest.NewServer(f.Handler())
	f.url = h.URL
	transport := &http.Transport{}
	f.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		f.Server.Close()
		transport.CloseIdleConnections()
		h.Close()
	})
	return f
}

// await waits, event by event, until cond holds.
func (f *fixture) await(what string, cond func() bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer cancel()
	for !cond() {
		select {
		case <-f.events:
		case <-ctx.Done():
			f.t.Fatalf("never: %s; log %+v", what, f.Log())
		}
	}
}

func (f *fixture) awaitHeld(ids ...string) {
	f.t.Helper()
	f.await("held "+strings.Join(ids, ","), func() bool { return strings.Join(f.Held(), ",") == strings.Join(ids, ",") })
}

func (f *fixture) record(id string) evidence.Backend {
	f.t.Helper()
	for _, r := range f.Log() {
		if r.ID == id {
			return r
		}
	}
	f.t.Fatalf("no record of %q", id)
	return evidence.Backend{}
}

// open sends a request and returns the response with its body unread.
func (f *fixture) open(ctx context.Context, id, path, body string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set(wire.HeaderID, id)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return f.client.Do(r)
}

type reply struct {
	status int
	body   string
	header http.Header
}

func (f *fixture) post(id, path, body string, headers ...string) reply {
	f.t.Helper()
	resp, err := f.open(f.t.Context(), id, path, body, headers...)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.read(resp)
}

func (f *fixture) get(path string) reply {
	f.t.Helper()
	resp, err := f.client.Get(f.url + path)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.read(resp)
}

func (f *fixture) read(resp *http.Response) reply {
	f.t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return reply{resp.StatusCode, string(b), resp.Header}
}

// later posts in the background; the channel gives the reply, or status 0 with the error.
func (f *fixture) later(ctx context.Context, id, path, body string, headers ...string) <-chan reply {
	done := make(chan reply, 1)
	go func() {
		resp, err := f.open(ctx, id, path, body, headers...)
		if err != nil {
			done <- reply{body: err.Error()}
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			done <- reply{body: err.Error()}
			return
		}
		done <- reply{resp.StatusCode, string(b), resp.Header}
	}()
	return done
}

// frames splits an SSE body into its data.
func frames(t *testing.T, body string) []string {
	t.Helper()
	var out []string
	for _, f := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(f, "data: ")
		if !ok || strings.Contains(data, "\n") {
			t.Fatalf("no SSE frame: %q", f)
		}
		if data != "[DONE]" && !json.Valid([]byte(data)) {
			t.Fatalf("no JSON: %s", data)
		}
		out = append(out, data)
	}
	return out
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// chunk is any OpenAI response or stream frame.
type chunk struct {
	ID, Object, Model string
	Choices           []struct {
		Text         string
		FinishReason *string `json:"finish_reason"`
		Message      struct{ Role, Content string }
		Delta        struct {
			Role    string
			Content *string
		}
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
}
