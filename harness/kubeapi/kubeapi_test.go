package kubeapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // the client library's own log of what the tests provoke
	goleak.VerifyTestMain(m)
}

// limit ends a test that would hang.
const limit = 20 * time.Second

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// started serves a pool "sims" with a ready pod "sim-0" and an objective "high".
func started(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Put(sims.Object(), sim0.Object(), high.Object()); err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	sims = Pool{Namespace: "ns", Name: "sims", Selector: map[string]string{"app": "sim"}, Ports: []int{8001}}
	sim0 = Pod{Namespace: "ns", Name: "sim-0", IP: "127.0.1.1", Labels: map[string]string{"app": "sim"}}
	high = Objective{Namespace: "ns", Name: "high", Pool: "sims", Priority: 100}
)

const (
	podsPath      = "/api/v1/namespaces/ns/pods"
	poolsPath     = "/apis/inference.networking.k8s.io/v1/namespaces/ns/inferencepools"
	objectivePath = "/apis/llm-d.ai/v1alpha2/namespaces/ns/inferenceobjectives"
	leasesPath    = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
)

// ask sends one request and reads the answer as an object.
func ask(t *testing.T, s *Server, method, path, media, body string) (int, Object) {
	t.Helper()
	req, err := http.NewRequestWithContext(limited(t), method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	req.Header.Set("Accept", "application/vnd.kubernetes.protobuf,application/cbor")
	resp, err := http.DefaultTransport.(*http.Transport).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("%s %s: answered as %q", method, path, got)
	}
	o, err := decode(text)
	if err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
	return resp.StatusCode, o
}

func TestAnswers(t *testing.T) {
	const merge, patch = "application/merge-patch+json", "application/json-patch+json"
	for _, c := range []struct {
		says                      string
		method, path, media, body string
		code                      int
		reason                    string // of the Status; "" for none
		part                      string // text in the answer
	}{
		{"core versions", "GET", "/api", "", "", 200, "", `"versions":["v1"]`},
		{"groups", "GET", "/apis", "", "", 200, "", `"groupVersion":"inference.networking.x-k8s.io/v1alpha2"`},
		{"one group", "GET", "/apis/llm-d.ai", "", "", 200, "", `"kind":"APIGroup"`},
		{"resources of a group", "GET", "/apis/llm-d.ai/v1alpha2", "", "", 200, "", `"name":"inferencemodelrewrites"`},
		{"resources of the core", "GET", "/api/v1", "", "", 200, "", `"name":"pods/status"`},
		{"the version", "GET", "/version", "", "", 200, "", `"major":"1"`},
		{"a group nobody installed", "GET", "/apis/apps", "", "", 404, "NotFound", ""},
		{"a version nobody serves", "GET", "/apis/llm-d.ai/v1", "", "", 404, "NotFound", ""},
		{"a resource nobody installed", "GET", "/api/v1/namespaces/ns/services", "", "", 404, "NotFound", ""},
		{"discovery is read-only", "POST", "/apis", "", "{}", 405, "MethodNotAllowed", ""},

		{"an object", "GET", poolsPath + "/sims", "", "", 200, "", `"targetPorts":[{"number":8001}]`},
		{"an object's status", "GET", podsPath + "/sim-0/status", "", "", 200, "", `"podIP":"127.0.1.1"`},
		{"no such object", "GET", podsPath + "/x", "", "", 404, "NotFound", `pods \"x\" not found`},
		{"another namespace", "GET", "/api/v1/namespaces/other/pods/sim-0", "", "", 404, "NotFound", ""},
		{"a list", "GET", podsPath, "", "", 200, "", `"kind":"PodList"`},
		{"a list of all namespaces", "GET", "/api/v1/pods", "", "", 200, "", `"name":"sim-0"`},
		{"an empty list has items", "GET", leasesPath, "", "", 200, "", `"items":[]`},
		{"chosen by name", "GET", podsPath + "?fieldSelector=metadata.name=x", "", "", 200, "", `"items":[]`},
		{"chosen by node", "GET", podsPath + "?fieldSelector=spec.nodeName=node-0", "", "", 200, "", `"name":"sim-0"`},
		{"chosen by label", "GET", podsPath + "?labelSelector=app%20in%20(a,sim)", "", "", 200, "", `"name":"sim-0"`},
		{"not chosen by label", "GET", podsPath + "?labelSelector=app%21%3Dsim", "", "", 200, "", `"items":[]`},
		{"a field that cannot be selected by", "GET", poolsPath + "?fieldSelector=spec.nodeName=x", "", "", 400, "BadRequest", "not supported"},
		{"no label selector", "GET", podsPath + "?labelSelector=(", "", "", 400, "BadRequest", "labelSelector"},
		{"no version", "GET", podsPath + "?resourceVersion=x", "", "", 400, "BadRequest", ""},
		{"a version to come", "GET", podsPath + "?resourceVersion=99", "", "", 504, "Timeout", "Too large resource version"},
		{"no continue token", "GET", podsPath + "?continue=x", "", "", 400, "BadRequest", ""},
		{"no limit", "GET", podsPath + "?limit=x", "", "", 400, "BadRequest", ""},
		{"no timeout", "GET", podsPath + "?watch=true&timeoutSeconds=x", "", "", 400, "BadRequest", ""},
		{"a streaming list of unknown age", "GET", podsPath + "?watch=true&sendInitialEvents=true", "", "", 422, "Invalid", ""},
		{"an age without a streaming list", "GET", podsPath + "?watch=1&resourceVersionMatch=NotOlderThan", "", "", 422, "Invalid", ""},

		{"created", "POST", leasesPath, plain, `{"metadata":{"name":"l"},"spec":{"holderIdentity":"a"}}`, 201, "", `"resourceVersion":"4"`},
		{"created under a drawn name", "POST", leasesPath, "", `{"metadata":{"generateName":"l-"}}`, 201, "", `"name":"l-4"`},
		{"created twice", "POST", podsPath, plain, `{"metadata":{"name":"sim-0"}}`, 409, "AlreadyExists", ""},
		{"no JSON", "POST", podsPath, plain, `{`, 400, "BadRequest", "unrecognized"},
		{"two objects", "POST", podsPath, plain, `{}{}`, 400, "BadRequest", ""},
		{"nothing", "POST", podsPath, plain, `null`, 400, "BadRequest", ""},
		{"without a name", "POST", podsPath, plain, `{}`, 400, "BadRequest", "metadata.name"},
		{"under a name with a slash", "POST", podsPath, plain, `{"metadata":{"name":"a/b"}}`, 400, "BadRequest", "metadata.name"},
		{"labels that are none", "POST", podsPath, plain, `{"metadata":{"name":"a","labels":{"a":1}}}`, 400, "BadRequest", "metadata.labels"},
		{"metadata that is none", "POST", podsPath, plain, `{"metadata":[]}`, 400, "BadRequest", "metadata"},
		{"of another kind", "POST", podsPath, plain, `{"kind":"Lease","metadata":{"name":"a"}}`, 400, "BadRequest", "kind"},
		{"for another namespace", "POST", podsPath, plain, `{"metadata":{"name":"a","namespace":"other"}}`, 400, "BadRequest", "namespace"},
		{"into no namespace", "POST", "/api/v1/pods", plain, `{"metadata":{"name":"a"}}`, 400, "BadRequest", "namespace"},
		{"in another media type", "POST", podsPath, "application/vnd.kubernetes.protobuf", `x`, 415, "UnsupportedMediaType", "application/json"},
		{"too large", "POST", podsPath, plain, strings.Repeat(" ", bodyLimit+1), 413, "RequestEntityTooLarge", ""},
		{"with a version of its own", "POST", podsPath, plain, `{"metadata":{"name":"a","resourceVersion":"1"}}`, 400, "BadRequest", "resourceVersion"},
		{"only to try", "POST", podsPath + "?dryRun=All", plain, `{"metadata":{"name":"a"}}`, 400, "BadRequest", "dryRun"},

		{"replaced", "PUT", poolsPath + "/sims", plain, `{"metadata":{"resourceVersion":"1"},"spec":{"x":1}}`, 200, "", `"generation":2`},
		{"replaced by the same", "PUT", podsPath + "/sim-0", plain, func() string { b, _ := json.Marshal(sim0.Object()); return string(b) }(), 200, "", `"resourceVersion":"2"`},
		{"replaced on an old base", "PUT", poolsPath + "/sims", plain, `{"metadata":{"resourceVersion":"3"},"spec":{}}`, 409, "Conflict", "modified"},
		{"a custom one replaced on no base", "PUT", poolsPath + "/sims", plain, `{"spec":{}}`, 422, "Invalid", "must be specified"},
		{"a pod replaced on no base", "PUT", podsPath + "/sim-0", plain, `{"spec":{}}`, 200, "", `"podIP":"127.0.1.1"`},
		{"replaced as another", "PUT", podsPath + "/sim-0", plain, `{"metadata":{"uid":"x"}}`, 409, "Conflict", "UID"},
		{"replaced under another name", "PUT", podsPath + "/sim-0", plain, `{"metadata":{"name":"x"}}`, 400, "BadRequest", "metadata"},
		{"nothing to replace", "PUT", podsPath + "/x", plain, `{}`, 404, "NotFound", ""},
		{"status replaced alone", "PUT", poolsPath + "/sims/status", plain, `{"metadata":{"resourceVersion":"1"},"spec":{},"status":{"parents":[]}}`, 200, "", `"number":8001`},

		{"merged", "PATCH", podsPath + "/sim-0", merge, `{"metadata":{"labels":{"app":null,"b":"c"}}}`, 200, "", `"labels":{"b":"c"}`},
		{"status merged", "PATCH", poolsPath + "/sims/status", merge, `{"spec":{"targetPorts":[]},"status":{"parents":[{"x":1}]}}`, 200, "", `"parents":[{"x":1}]`},
		{"status merged at the wrong place", "PATCH", poolsPath + "/sims", merge, `{"status":{"parents":[]}}`, 200, "", `"resourceVersion":"1"`},
		{"merged on an old base", "PATCH", podsPath + "/sim-0", merge, `{"metadata":{"resourceVersion":"1"}}`, 409, "Conflict", ""},
		{"patched", "PATCH", podsPath + "/sim-0", patch, `[{"op":"test","path":"/metadata/labels/app","value":"sim"},{"op":"replace","path":"/metadata/labels/app","value":"b"}]`, 200, "", `"app":"b"`},
		{"patched where the test fails", "PATCH", podsPath + "/sim-0", patch, `[{"op":"test","path":"/metadata/labels/app","value":"x"}]`, 422, "Invalid", ""},
		{"patched where nothing is", "PATCH", podsPath + "/sim-0", patch, `[{"op":"remove","path":"/spec/x"}]`, 422, "Invalid", ""},
		{"no patch", "PATCH", podsPath + "/sim-0", patch, `{}`, 400, "BadRequest", ""},
		{"no merge patch", "PATCH", podsPath + "/sim-0", merge, `{`, 400, "BadRequest", ""},
		{"patched to nothing", "PATCH", podsPath + "/sim-0", merge, `null`, 400, "BadRequest", ""},
		{"another kind of patch", "PATCH", podsPath + "/sim-0", "application/strategic-merge-patch+json", `{}`, 415, "UnsupportedMediaType", ""},
		{"nothing to patch", "PATCH", podsPath + "/x", merge, `{}`, 404, "NotFound", ""},

		{"deleted", "DELETE", podsPath + "/sim-0", "", "", 200, "", `"status":"Success"`},
		{"deleted with options", "DELETE", podsPath + "/sim-0", plain, `{"kind":"DeleteOptions","preconditions":{"resourceVersion":"2"}}`, 200, "", `"Success"`},
		{"another one deleted", "DELETE", podsPath + "/sim-0", plain, `{"preconditions":{"uid":"x"}}`, 409, "Conflict", ""},
		{"deleted with nonsense", "DELETE", podsPath + "/sim-0", plain, `{`, 400, "BadRequest", ""},
		{"nothing to delete", "DELETE", podsPath + "/x", "", "", 404, "NotFound", ""},
		{"a collection deleted", "DELETE", podsPath, "", "", 405, "MethodNotAllowed", ""},
		{"an object posted to", "POST", podsPath + "/sim-0", plain, `{}`, 405, "MethodNotAllowed", ""},
	} {
		t.Run(c.says, func(t *testing.T) {
			s := started(t, Config{})
			code, o := ask(t, s, c.method, c.path, c.media, c.body)
			text, _ := json.Marshal(o)
			if code != c.code || o.text("reason") != c.reason || !strings.Contains(string(text), c.part) {
				t.Errorf("%d %q: %s\nwant %d %q: %s", code, o.text("reason"), text, c.code, c.reason, c.part)
			}
			if c.reason != "" && (o.text("kind") != "Status" || o.text("status") != "Failure" || fmt.Sprint(o["code"]) != fmt.Sprint(c.code) || o.text("message") == "") {
				t.Errorf("no complete Status: %s", text)
			}
		})
	}
}

// A client that prefers the aggregated form of discovery sees by the media type that it got the plain one.
func TestAggregatedDiscoveryIsNotClaimed(t *testing.T) {
	s := started(t, Config{})
	req, err := http.NewRequestWithContext(limited(t), http.MethodGet, s.URL()+"/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("answered as %q", got)
	}
}

func TestAbsentResources(t *testing.T) {
	s := started(t, Config{Absent: []string{Objectives, Rewrites, LegacyRewrites}})
	for path, want := range map[string]int{"/apis/llm-d.ai/v1alpha2": 404, "/apis/llm-d.ai": 404, objectivePath: 404, "/apis/inference.networking.x-k8s.io/v1alpha2": 200} {
		if code, _ := ask(t, s, "GET", path, "", ""); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	if _, err := Start(Config{Absent: []string{"nodes"}}); err == nil {
		t.Error("a resource that does not exist cannot be left out")
	}
}

func TestPages(t *testing.T) {
	s := started(t, Config{})
	for i := range 5 {
		if err := s.Put(Pod{Namespace: "ns", Name: fmt.Sprintf("sim-%d", i), IP: "127.0.1.1"}.Object()); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	next := ""
	for {
		_, o := ask(t, s, "GET", podsPath+"?limit=2&continue="+next, "", "")
		for _, item := range o["items"].([]any) {
			names = append(names, Object(item.(map[string]any)).text("metadata", "name"))
		}
		if next = o.text("metadata", "continue"); next == "" {
			break
		}
	}
	if want := []string{"sim-0", "sim-1", "sim-2", "sim-3", "sim-4"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	_, o := ask(t, s, "GET", podsPath+"?limit=2", "", "")
	if err := s.Delete(Pods, "ns", "sim-4"); err != nil {
		t.Fatal(err)
	}
	if code, _ := ask(t, s, "GET", podsPath+"?limit=2&continue="+o.text("metadata", "continue"), "", ""); code != 410 {
		t.Errorf("a page of a list that has changed: %d", code)
	}
}

// watcher reads one watch line by line.
type watcher struct {
	t     *testing.T
	lines *bufio.Scanner
	stop  context.CancelFunc
}

func watching(t *testing.T, s *Server, path string) *watcher {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	return &watcher{t, bufio.NewScanner(resp.Body), cancel}
}

// next is the next event as "TYPE name version", "" at the end of the watch.
func (w *watcher) next() string {
	w.t.Helper()
	if !w.lines.Scan() {
		return ""
	}
	var e struct {
		Type   string
		Object Object
	}
	if err := json.NewDecoder(bytes.NewReader(w.lines.Bytes())).Decode(&e); err != nil {
		w.t.Fatal(err)
	}
	end := ""
	if a, ok := e.Object.metadata()["annotations"].(map[string]any); ok && a["k8s.io/initial-events-end"] == "true" {
		end = " end"
	}
	if e.Type == "ERROR" {
		return fmt.Sprintf("ERROR %v %s", e.Object["code"], e.Object.text("reason"))
	}
	return strings.Join(slices.DeleteFunc([]string{e.Type, e.Object.text("metadata", "name"), e.Object.text("metadata", "resourceVersion")},
		func(s string) bool { return s == "" }), " ") + end
}

func (w *watcher) want(events ...string) {
	w.t.Helper()
	for _, want := range events {
		if got := w.next(); got != want {
			w.t.Fatalf("%q, want %q", got, want)
		}
	}
}

func TestWatch(t *testing.T) {
	put := func(t *testing.T, s *Server, o Object) {
		t.Helper()
		if err := s.Put(o); err != nil {
			t.Fatal(err)
		}
	}
	relabelled := sim0
	relabelled.Labels = map[string]string{"app": "other"}
	for _, c := range []struct {
		says  string
		cfg   Config
		query string
		do    func(t *testing.T, s *Server)
		want  []string
	}{
		{"from nowhere it begins with what is there", Config{}, "", nil, []string{"ADDED sim-0 2"}},
		{"from 0 too", Config{}, "resourceVersion=0", nil, []string{"ADDED sim-0 2"}},
		{"from a version it goes on", Config{}, "resourceVersion=1", nil, []string{"ADDED sim-0 2"}},
		{"from the newest it waits", Config{}, "resourceVersion=3", func(t *testing.T, s *Server) {
			put(t, s, relabelled.Object())
			put(t, s, relabelled.Object()) // no change is no event
			if err := s.Delete(Pods, "ns", "sim-0"); err != nil {
				t.Fatal(err)
			}
			put(t, s, sim0.Object())
		}, []string{"MODIFIED sim-0 4", "DELETED sim-0 5", "ADDED sim-0 6"}},
		{"what leaves a selection is deleted from it, what comes back is added", Config{}, "labelSelector=app%3Dsim", func(t *testing.T, s *Server) {
			put(t, s, relabelled.Object())
			put(t, s, sim0.Object())
		}, []string{"ADDED sim-0 2", "DELETED sim-0 4", "ADDED sim-0 5"}},
		{"by name only that one", Config{}, "fieldSelector=metadata.name%3Dsim-1", func(t *testing.T, s *Server) {
			put(t, s, relabelled.Object())
			put(t, s, Pod{Namespace: "ns", Name: "sim-1"}.Object())
		}, []string{"ADDED sim-1 5"}},
		{"a streaming list ends with a bookmark of its version", Config{}, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", func(t *testing.T, s *Server) {
			put(t, s, relabelled.Object())
		}, []string{"ADDED sim-0 2", "BOOKMARK 3 end", "MODIFIED sim-0 4"}},
		{"without bookmarks it does not", Config{}, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan", func(t *testing.T, s *Server) {
			put(t, s, relabelled.Object())
		}, []string{"ADDED sim-0 2", "MODIFIED sim-0 4"}},
		{"without initial events", Config{}, "sendInitialEvents=false&resourceVersionMatch=NotOlderThan", func(t *testing.T, s *Server) {
			put(t, s, relabelled.Object())
		}, []string{"MODIFIED sim-0 4"}},
		{"when its time is up it says how far it came and ends", Config{}, "resourceVersion=3&timeoutSeconds=1&allowWatchBookmarks=true", nil, []string{"BOOKMARK 3", ""}},
		{"bookmarks come from time to time", Config{BookmarkPeriod: time.Millisecond}, "resourceVersion=3&allowWatchBookmarks=true", nil, []string{"BOOKMARK 3", "BOOKMARK 3"}},
		{"events of other resources move it on silently", Config{BookmarkPeriod: 50 * time.Millisecond}, "resourceVersion=2&allowWatchBookmarks=true", nil, []string{"BOOKMARK 3"}},
		{"an API server that goes away ends it", Config{}, "resourceVersion=3", func(_ *testing.T, s *Server) { s.EndWatches(false) }, []string{""}},
	} {
		t.Run(c.says, func(t *testing.T) {
			s := started(t, c.cfg)
			w := watching(t, s, podsPath+"?watch=true&"+c.query)
			if err := s.AwaitWatches(limited(t), Pods); err != nil {
				t.Fatal(err)
			}
			if c.do != nil {
				c.do(t, s)
			}
			w.want(c.want...)
		})
	}
}

func TestForgottenEvents(t *testing.T) {
	s := started(t, Config{})
	s.EndWatches(true)
	for version, want := range map[string]int{"1": 410, "2": 410} {
		code, o := ask(t, s, "GET", podsPath+"?watch=true&resourceVersion="+version, "", "")
		if code != want || o.text("reason") != "Expired" {
			t.Errorf("from %s: %d %s", version, code, o.text("reason"))
		}
	}
	w := watching(t, s, podsPath+"?watch=true&resourceVersion=3")
	if err := s.Put(Pod{Namespace: "ns", Name: "sim-1"}.Object()); err != nil {
		t.Fatal(err)
	}
	w.want("ADDED sim-1 4")
}

// A history that is too short for a burst: a watch gets every event or is told that it has missed some, never silence.
func TestShortHistory(t *testing.T) {
	s := started(t, Config{History: 1})
	w := watching(t, s, podsPath+"?watch=true&resourceVersion=3")
	const last = 300
	for i := range last {
		p := sim0
		p.Labels = map[string]string{"n": fmt.Sprint(i)}
		if err := s.Put(p.Object()); err != nil {
			t.Fatal(err)
		}
	}
	want := 4
	for {
		got := w.next()
		if got == "ERROR 410 Expired" {
			break
		}
		if got != fmt.Sprintf("MODIFIED sim-0 %d", want) {
			t.Fatalf("%q, want version %d or an error", got, want)
		}
		if want++; want == 4+last {
			break
		}
	}
}

func TestBarriers(t *testing.T) {
	s := started(t, Config{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.AwaitWatches(gone, Pods, Pools); err == nil || !strings.Contains(err.Error(), "nobody watches pods") || !strings.Contains(err.Error(), Pools) {
		t.Errorf("the error must name what is not watched: %v", err)
	}
	a, b := watching(t, s, podsPath+"?watch=true"), watching(t, s, poolsPath+"?watch=true")
	if err := s.AwaitWatches(limited(t), Pods, Pools); err != nil {
		t.Fatal(err)
	}
	if got := s.Watches(); got[Pods] != 1 || got[Pools] != 1 || len(got) != 2 {
		t.Errorf("open: %v", got)
	}
	if err := s.Delete(Pods, "ns", "sim-0"); err != nil {
		t.Fatal(err)
	}
	if err := s.AwaitDelivered(limited(t)); err != nil {
		t.Fatal(err)
	}
	a.want("ADDED sim-0 2", "DELETED sim-0 4")
	b.want("ADDED sims 1")
	a.stop()
	if err := s.await(limited(t), func() bool { return len(s.watches) == 1 }); err != nil {
		t.Errorf("a watch whose peer has left is still counted: %v", err)
	}
	if got := s.Calls(); got["watch pods"] != 1 {
		t.Errorf("calls: %v", got)
	}
	s.SetDown(true)
	if code, _ := ask(t, s, "GET", podsPath, "", ""); code != 503 {
		t.Errorf("switched off: %d", code)
	}
}

func TestGoAPIRefuses(t *testing.T) {
	s := started(t, Config{})
	for says, o := range map[string]Object{
		"an unknown kind": {"apiVersion": "v1", "kind": "Node", "metadata": Object{"name": "x"}},
		"no name":         {"apiVersion": "v1", "kind": "Pod"},
		"no JSON":         {"apiVersion": "v1", "kind": "Pod", "metadata": Object{"name": "x"}, "f": func() {}},
	} {
		if err := s.Put(o); err == nil {
			t.Errorf("%s was stored", says)
		}
	}
	for says, err := range map[string]error{"an unknown resource": s.Delete("nodes", "ns", "x"), "an unknown name": s.Delete(Pods, "ns", "x")} {
		if err == nil {
			t.Errorf("%s was deleted", says)
		}
	}
}

func TestKubeconfig(t *testing.T) {
	s := started(t, Config{})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := s.WriteKubeconfig(file, "ns"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), s.URL()) {
		t.Errorf("%v: %s", err, text)
	}
}
