package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// reviews is the part of an API that judges tokens: "good" and "good-..." are the scraper's, "poor" is another user's, "nobody" is
// malformed, "both" is allowed and denied at once, all others are not valid.
type reviews struct {
	mu     sync.Mutex
	fail   int    // answer this status
	at     string // ... to questions about this resource only
	hang   bool
	tokens int
	access int
	spec   map[string]any // of the last SubjectAccessReview
}

func (a *reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // the end of a connection is seen only after it
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hang {
		a.mu.Unlock()
		<-r.Context().Done()
		a.mu.Lock()
		return
	}
	if a.fail != 0 && strings.HasSuffix(r.URL.Path, a.at) {
		reason := map[int]string{401: "Unauthorized", 403: "Forbidden"}[a.fail]
		status(w, a.fail, reason)
		return
	}
	var q struct {
		APIVersion, Kind string
		Spec             map[string]any
	}
	if err := json.Unmarshal(body, &q); err != nil || r.Method != http.MethodPost {
		status(w, http.StatusBadRequest, "BadRequest")
		return
	}
	out := map[string]any{}
	switch r.URL.Path + " " + q.APIVersion + " " + q.Kind {
	case "/apis/authentication.k8s.io/v1/tokenreviews authentication.k8s.io/v1 TokenReview":
		a.tokens++
		name := map[string]string{"good": "scraper", "poor": "poor", "both": "both", "nobody": ""}
		token, _, _ := strings.Cut(q.Spec["token"].(string), "-")
		if user, ok := name[token]; ok {
			out = map[string]any{"authenticated": true, "user": map[string]any{"username": user, "uid": "7",
				"groups": []string{"g", "system:authenticated"}, "extra": map[string]any{"scopes": []string{"a", "b"}}}}
		} else {
			out["error"] = "token has expired"
		}
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews authorization.k8s.io/v1 SubjectAccessReview":
		a.access++
		a.spec = q.Spec
		out["allowed"] = q.Spec["user"] == "scraper" || q.Spec["user"] == "both"
		out["denied"] = q.Spec["user"] == "both"
	default:
		status(w, http.StatusNotFound, "NotFound")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": q.APIVersion, "kind": q.Kind, "metadata": map[string]any{}, "spec": q.Spec, "status": out})
}

// asked are the questions since the last call.
func (a *reviews) asked() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := fmt.Sprint(a.tokens, "+", a.access)
	a.tokens, a.access = 0, 0
	return out
}

func (a *reviews) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// reviewer is one in virtual time; it must be made in a bubble.
func reviewer(t *testing.T, a *reviews, log io.Writer) *Reviewer {
	r, err := newReviewer(ReviewConfig{Logger: slog.New(slog.NewTextHandler(log, nil))}, &rest.Config{Host: "http://api", Transport: serve(t, a)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func allow(t *testing.T, r *Reviewer, token string, want int, text string) {
	t.Helper()
	if got, why := r.Allow(t.Context(), token, "/metrics"); got != want || !strings.Contains(why, text) || text == "" && why != "" {
		t.Errorf("%q: %d %q, want %d %q", token, got, why, want, text)
	}
}

// TestReview: who gets what, what the API is asked, and for how long it is not asked again (AP-HEALTH-02).
func TestReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &reviews{}
		r := reviewer(t, a, io.Discard)
		check := func(token string, status int, text, asked string) {
			t.Helper()
			allow(t, r, token, status, text)
			if got := a.asked(); got != asked {
				t.Errorf("%q: %s questions, want %s", token, got, asked)
			}
		}
		check("", 401, "send Authorization: Bearer TOKEN", "0+0")
		check("good", 200, "", "1+1")
		want := map[string]any{"user": "scraper", "uid": "7", "groups": []any{"g", "system:authenticated"}, "extra": map[string]any{"scopes": []any{"a", "b"}},
			"nonResourceAttributes": map[string]any{"path": "/metrics", "verb": "get"}}
		if !reflect.DeepEqual(a.spec, want) {
			t.Errorf("%v, want %v", a.spec, want)
		}
		check("stale", 401, "the token is not valid", "1+0")
		check("poor", 403, "poor may not get /metrics: a ClusterRole", "1+1")
		check("both", 403, "both may not", "1+1")
		pass(refusedTTL - time.Nanosecond)
		check("good", 200, "", "0+0")
		check("stale", 401, "the token is not valid", "0+0")
		check("poor", 403, "poor may not", "0+0")
		if status, _ := r.Allow(t.Context(), "good", "/other"); status != 200 || a.asked() != "1+1" {
			t.Error("an answer about one path was taken for another")
		}
		pass(time.Nanosecond)
		check("stale", 401, "the token is not valid", "1+0")
		check("poor", 403, "poor may not", "1+1")
		check("good", 200, "", "0+0")
		pass(allowedTTL - refusedTTL)
		check("good", 200, "", "1+1")
	})
}

// TestReviewFailures: an API that does not answer lets nobody in, is asked again by the next request, and fills no log.
func TestReviewFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &reviews{}
		var log bytes.Buffer
		r := reviewer(t, a, &log)
		for _, c := range []struct {
			fail int
			at   string
			text string
		}{
			{403, "tokenreviews", "bind its service account to the ClusterRole system:auth-delegator"},
			{403, "subjectaccessreviews", "bind its service account to the ClusterRole system:auth-delegator"},
			{401, "", "does not accept this process's own credentials"},
			{404, "", "could not be asked"},
			{500, "", "could not be asked"},
		} {
			a.set(func() { a.fail, a.at = c.fail, c.at })
			allow(t, r, "good", 503, c.text)
		}
		a.set(func() { a.fail = 0 })
		allow(t, r, "nobody", 503, "could not be asked")
		allow(t, r, "good", 200, "")
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "tokenreviews: ") {
			t.Errorf("%d lines: %s", n, log.String())
		}
		log.Reset()
		pass(allowedTTL)
		a.set(func() { a.hang = true })
		allow(t, r, "good", 503, "did not say within 5s")
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d lines: %s", n, log.String())
		}
		log.Reset()
		pass(complaintPeriod)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if status, _ := r.Allow(ctx, "good", "/metrics"); status != 503 || log.Len() > 0 {
			t.Errorf("given up: %d, log %q", status, log.String())
		}
	})
}

// TestReviewBounds: made-up tokens neither fill the memory nor push out a good one, and the API is asked so often and no more.
func TestReviewBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &reviews{}
		r := reviewer(t, a, io.Discard)
		limit := 3 * answersKept
		for i := range limit {
			if i%50 == 0 {
				allow(t, r, "good", 200, "")
			}
			allow(t, r, fmt.Sprintf("bad-%d", i), 401, "not valid")
			allow(t, r, fmt.Sprintf("good-%d", i), 200, "")
		}
		if len(r.refused) > answersKept || len(r.allowed) > answersKept {
			t.Errorf("%d and %d answers", len(r.refused), len(r.allowed))
		}
		pass(time.Minute)
		a.asked()
		var tasks sync.WaitGroup
		var mu sync.Mutex
		statuses := map[int]int{}
		for i := range 500 {
			tasks.Go(func() {
				status, _ := r.Allow(t.Context(), fmt.Sprintf("flood-%d", i), "/metrics")
				mu.Lock()
				defer mu.Unlock()
				statuses[status]++
			})
		}
		tasks.Wait()
		if n := reviewBurst + int(reviewTimeout.Seconds())*reviewQPS; statuses[401] > n || statuses[401] < reviewBurst || statuses[401]+statuses[503] != 500 {
			t.Errorf("%v, want at most %d questions", statuses, n)
		}
	})
}

// TestMakeRoom: what is over goes first, then what is over next.
func TestMakeRoom(t *testing.T) {
	m := answers{}
	key := func(i int) (k [32]byte) { k[0], k[1] = byte(i), byte(i>>8); return k }
	for i := range answersKept {
		m[key(i)] = verdict{until: time.Duration(answersKept - i)}
	}
	m.makeRoom(2)
	if len(m) != answersKept-2 {
		t.Errorf("%d left", len(m))
	}
	m[key(1000)], m[key(1001)] = verdict{until: 99999}, verdict{until: 99999}
	m.makeRoom(2)
	if _, ok := m[key(answersKept-3)]; ok || len(m) != answersKept-1 {
		t.Errorf("%d left", len(m))
	}
}

// TestReviewOverSockets: from a kubeconfig file to an API and back, by the header of a request.
func TestReviewOverSockets(t *testing.T) {
	a := &reviews{}
	api := httptest.NewServer(a)
	file := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: \"" + api.URL + "\"}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	r, err := NewReviewer(ReviewConfig{UserAgent: "weir-processor", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(header string, want int) {
		t.Helper()
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
		q.Header.Set("Authorization", header)
		if got, why := r.AllowRequest(q); got != want {
			t.Errorf("%q: %d %s, want %d", header, got, why, want)
		}
	}
	for header, want := range map[string]int{"": 401, "Bearer": 401, "Bearer  ": 401, "Basic good": 401, "good": 401, "Bearer good": 200, " bearer  good ": 200,
		"Bearer poor": 403, "Bearer stale": 401} {
		ask(header, want)
	}
	api.Close()
	ask("Bearer another", 503)
	ask("Bearer good", 200) // remembered
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestReviewerConfig: what leads to no API is said.
func TestReviewerConfig(t *testing.T) {
	for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
		t.Setenv(name, "")
	}
	if _, err := os.Stat(filepath.Join(os.Getenv("HOME"), ".kube", "config")); err != nil {
		if _, err := NewReviewer(ReviewConfig{}); err == nil || err.Error() != "neither a kubeconfig nor a pod's service account leads to a Kubernetes API" {
			t.Error(err)
		}
	}
	if _, err := NewReviewer(ReviewConfig{Kubeconfig: filepath.Join(t.TempDir(), "gone")}); err == nil || !strings.HasPrefix(err.Error(), "kubeconfig: ") {
		t.Error(err)
	}
}
