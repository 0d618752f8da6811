package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// apiServer is as much of a Kubernetes API as the watcher uses: discovery, list, watch (streaming lists and bookmarks included) and
// reading and writing single objects, with one resource version for everything and an event log. It has no selectors but
// metadata.name.
type apiServer struct {
	mu        sync.Mutex
	rv        int
	objects   map[string]map[string]any // by path of the object
	log       []change
	compacted int           // events up to this resource version are forgotten
	bell      chan struct{} // closed at each change
	drop      chan struct{} // closed to end all watches
	down      bool          // answer 503
	crds      map[string]bool
	asked     map[string]bool // "verb group/resource" in any namespace
	lists     int             // plain lists served
	noStreams bool            // refuse streaming lists
}

type change struct {
	rv   int
	kind string // ADDED, MODIFIED, DELETED
	path string
	obj  map[string]any
}

var kinds = map[string]string{"pods": "Pod", "inferencepools": "InferencePool", "inferenceobjectives": "InferenceObjective",
	"inferencemodelrewrites": "InferenceModelRewrite", "leases": "Lease"}

func newAPI(crds ...string) *apiServer {
	a := &apiServer{objects: map[string]map[string]any{}, bell: make(chan struct{}), drop: make(chan struct{}), crds: map[string]bool{}, asked: map[string]bool{}}
	for _, c := range crds {
		a.crds[c] = true
	}
	return a
}

// resourcePath is the collection of a resource in namespace "ns".
func resourcePath(group, version, resource string) string {
	if group == "" {
		return "/api/" + version + "/namespaces/ns/" + resource
	}
	return "/apis/" + group + "/" + version + "/namespaces/ns/" + resource
}

var (
	poolPath      = resourcePath(defaultPoolGroup, "v1", "inferencepools")
	podPath       = resourcePath("", "v1", "pods")
	objectivePath = resourcePath(group, "v1alpha2", "inferenceobjectives")
	legacyPath    = resourcePath(legacyGroup, "v1alpha2", "inferenceobjectives")
	rewritePath   = resourcePath(group, "v1alpha2", "inferencemodelrewrites")
	leasePath     = resourcePath("coordination.k8s.io", "v1", "leases")
)

// put creates or replaces an object, given as YAML-free JSON of its metadata extras, spec and status.
func (a *apiServer) put(path, name, text string) {
	var obj map[string]any
	if err := json.Unmarshal([]byte(text), &obj); err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	meta, _ := obj["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["name"], meta["namespace"] = name, "ns"
	obj["metadata"] = meta
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store(path, name, obj)
}

func (a *apiServer) store(path, name string, obj map[string]any) {
	kind := "ADDED"
	if _, ok := a.objects[path+"/"+name]; ok {
		kind = "MODIFIED"
	}
	parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/"), "/")
	obj["kind"] = kinds[parts[len(parts)-1]]
	obj["apiVersion"] = strings.Join(parts[:len(parts)-3], "/")
	a.record(kind, path, name, obj)
	a.objects[path+"/"+name] = obj
}

func (a *apiServer) record(kind, path, name string, obj map[string]any) {
	a.rv++
	obj["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(a.rv)
	a.log = append(a.log, change{a.rv, kind, path + "/" + name, obj})
	close(a.bell)
	a.bell = make(chan struct{})
}

func (a *apiServer) remove(path, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	obj := clone(a.objects[path+"/"+name])
	delete(a.objects, path+"/"+name)
	a.record("DELETED", path, name, obj)
}

func clone(obj map[string]any) map[string]any {
	text, _ := json.Marshal(obj)
	var out map[string]any
	_ = json.Unmarshal(text, &out)
	return out
}

// cut ends all watches; forget also forgets all events, so that they cannot be resumed (410).
func (a *apiServer) cut(forget bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if forget {
		a.log, a.compacted = nil, a.rv
	}
	close(a.drop)
	a.drop = make(chan struct{})
}

func (a *apiServer) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	down := a.down
	a.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch at := slices.Index(parts, "namespaces"); {
	case down:
		status(w, http.StatusServiceUnavailable, "ServiceUnavailable")
	case at < 0:
		a.discovery(w, parts)
	case len(parts) == at+3 && r.URL.Query().Get("watch") == "true":
		a.watch(w, r, parts)
	case len(parts) == at+3 && r.Method == http.MethodGet:
		a.list(w, r, parts)
	default:
		a.object(w, r, parts)
	}
}

func (a *apiServer) note(verb string, parts []string) string {
	at := slices.Index(parts, "namespaces")
	groupName := ""
	if parts[0] == "apis" {
		groupName = parts[1]
	}
	if parts[at+1] != "ns" {
		groupName = "another namespace: " + groupName
	}
	a.asked[verb+" "+groupName+"/"+parts[at+2]] = true
	return "/" + strings.Join(parts[:at+3], "/")
}

func status(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (a *apiServer) discovery(w http.ResponseWriter, parts []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var resources []map[string]any
	for _, name := range []string{"inferenceobjectives", "inferencemodelrewrites"} {
		if len(parts) == 3 && a.crds[parts[1]+"/"+name] {
			resources = append(resources, map[string]any{"name": name, "kind": kinds[name], "namespaced": true})
		}
	}
	if resources == nil {
		status(w, http.StatusNotFound, "NotFound")
		return
	}
	reply(w, map[string]any{"kind": "APIResourceList", "groupVersion": parts[1] + "/" + parts[2], "resources": resources})
}

// selected are the objects of a collection by name.
func (a *apiServer) selected(r *http.Request, path string) []map[string]any {
	out := []map[string]any{}
	for p, obj := range a.objects {
		if strings.HasPrefix(p, path+"/") && chosen(r, p) {
			out = append(out, obj)
		}
	}
	slices.SortFunc(out, func(x, y map[string]any) int {
		return strings.Compare(fmt.Sprint(x["metadata"].(map[string]any)["name"]), fmt.Sprint(y["metadata"].(map[string]any)["name"]))
	})
	return out
}

func chosen(r *http.Request, path string) bool {
	name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	return !ok || strings.HasSuffix(path, "/"+name)
}

func (a *apiServer) list(w http.ResponseWriter, r *http.Request, parts []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	path := a.note("list", parts)
	a.lists++
	resource := parts[len(parts)-1]
	reply(w, map[string]any{"kind": kinds[resource] + "List", "apiVersion": strings.Join(parts[1:len(parts)-3], "/"),
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.rv)}, "items": a.selected(r, path)})
}

func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, parts []string) {
	a.mu.Lock()
	path := a.note("watch", parts)
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	var first []any
	switch initial := q.Get("sendInitialEvents") == "true"; {
	case initial && a.noStreams:
		a.mu.Unlock()
		status(w, http.StatusUnprocessableEntity, "Invalid")
		return
	case initial:
		for _, obj := range a.selected(r, path) {
			first = append(first, map[string]any{"type": "ADDED", "object": clone(obj)})
		}
		from = a.rv
		first = append(first, map[string]any{"type": "BOOKMARK", "object": map[string]any{
			"kind": kinds[parts[len(parts)-1]], "apiVersion": strings.Join(parts[1:len(parts)-3], "/"),
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.rv), "annotations": map[string]any{"k8s.io/initial-events-end": "true"}}}})
	case from < a.compacted:
		a.mu.Unlock()
		status(w, http.StatusGone, "Expired")
		return
	}
	drop := a.drop
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	for _, e := range first {
		_ = enc.Encode(e)
	}
	for {
		w.(http.Flusher).Flush()
		a.mu.Lock()
		var next []change
		for _, c := range a.log {
			if c.rv > from && strings.HasPrefix(c.path, path+"/") && chosen(r, c.path) {
				next = append(next, change{c.rv, c.kind, c.path, clone(c.obj)})
			}
		}
		from = max(from, a.rv)
		bell := a.bell
		a.mu.Unlock()
		for _, c := range next {
			_ = enc.Encode(map[string]any{"type": c.kind, "object": c.obj})
		}
		if len(next) > 0 {
			continue
		}
		select {
		case <-bell:
		case <-drop:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// object reads and writes single objects, with optimistic locking.
func (a *apiServer) object(w http.ResponseWriter, r *http.Request, parts []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update"}[r.Method]
	path := a.note(verb, parts)
	var body map[string]any
	if verb != "get" {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			status(w, http.StatusBadRequest, "BadRequest")
			return
		}
	}
	name := parts[len(parts)-1]
	if verb == "create" {
		name = body["metadata"].(map[string]any)["name"].(string)
	}
	old, exists := a.objects[path+"/"+name]
	switch {
	case verb == "create" && exists:
		status(w, http.StatusConflict, "AlreadyExists")
		return
	case verb != "create" && !exists:
		status(w, http.StatusNotFound, "NotFound")
		return
	case verb == "get":
		reply(w, old)
		return
	case verb == "update" && body["metadata"].(map[string]any)["resourceVersion"] != old["metadata"].(map[string]any)["resourceVersion"]:
		status(w, http.StatusConflict, "Conflict")
		return
	}
	a.store(path, name, body)
	reply(w, body)
}

// pipes is a listener whose connections never leave the process, so that a test can run in virtual time.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.done:
	case <-ctx.Done():
	}
	return nil, net.ErrClosed
}

// serve answers over pipes until the test ends.
func serve(t *testing.T, a http.Handler) *http.Transport {
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	hs := &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = hs.Serve(p) })
	tr := &http.Transport{DialContext: p.dial}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		hs.Close()
		tasks.Wait()
	})
	return tr
}
