package binary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/kubeapi"
)

// PoolName is the InferencePool that a program finds: the default of the reference picker, so that a program like it need not be told.
const PoolName = "weir"

const (
	namespace = "default"
	appLabel  = "app"
	roleLabel = "llm-d.ai/role"
)

// Endpoint is a model server in the pool.
type Endpoint struct {
	Name string
	IP   string // one of its own
	Role string // value of the label llm-d.ai/role, "" for none
}

// world is what a program finds around it: files and a Kubernetes API, which say the same.
type world struct {
	dir     string
	api     *kubeapi.Server
	port    int // of every model server
	members map[string]Endpoint
	goals   map[goal]bool // objectives that are in the Kubernetes API
}

func newWorld(document string, port int) (w *world, err error) {
	w = &world{port: port, members: map[string]Endpoint{}, goals: map[goal]bool{}}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.dir, err = os.MkdirTemp("", "weir-picker-"); err != nil {
		return w, err
	}
	if w.api, err = kubeapi.Start(kubeapi.Config{}); err != nil {
		return w, err
	}
	pool := kubeapi.Pool{Namespace: namespace, Name: PoolName, Selector: map[string]string{appLabel: PoolName}, Ports: []int{port}}
	return w, errors.Join(w.api.Put(pool.Object()), w.api.WriteKubeconfig(w.file("kubeconfig"), namespace), w.write("config.yaml", []byte(document)))
}

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

// write replaces a file at one stroke: a reader sees the old or the new content.
func (w *world) write(name string, content []byte) error {
	next := w.file(name + ".next")
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	return os.Rename(next, w.file(name))
}

// setEndpoints publishes the members of the pool. It tells whether one that stays has changed its labels.
func (w *world) setEndpoints(list []Endpoint) (relabelled bool, err error) {
	type entry struct {
		Name      string            `yaml:"name"`
		Namespace string            `yaml:"namespace"`
		Address   string            `yaml:"address"`
		Port      string            `yaml:"port"`
		Labels    map[string]string `yaml:"labels,omitempty"`
	}
	doc := struct {
		Endpoints []entry `yaml:"endpoints"`
	}{[]entry{}}
	now := map[string]Endpoint{}
	var errs []error
	for _, e := range list {
		labels := map[string]string{}
		if e.Role != "" {
			labels[roleLabel] = e.Role
		}
		doc.Endpoints = append(doc.Endpoints, entry{e.Name, namespace, e.IP, strconv.Itoa(w.port), labels})
		pod := kubeapi.Pod{Namespace: namespace, Name: e.Name, IP: e.IP, Labels: maps.Clone(labels)}
		pod.Labels[appLabel] = PoolName
		errs = append(errs, w.api.Put(pod.Object()))
		now[e.Name] = e
		was, stays := w.members[e.Name]
		relabelled = relabelled || stays && was.Role != e.Role
	}
	for _, name := range slices.Sorted(maps.Keys(w.members)) {
		if _, stays := now[name]; !stays {
			errs = append(errs, w.api.Delete(kubeapi.Pods, namespace, name))
		}
	}
	w.members = now
	text, err := yaml.Marshal(doc)
	return relabelled, errors.Join(append(errs, err, w.write("endpoints.yaml", text))...)
}

// Objective is an InferenceObjective as an object.
type Objective struct {
	Name      string
	Priority  *int   // nil: it names none
	Pool      string // "": the pool's own, and so for the namespace
	Namespace string
}

// goal is where an objective is found.
type goal struct{ namespace, name string }

// setObjectives publishes the objectives, in both API groups: a program watches the one it knows. The file has those of goals alone.
func (w *world) setObjectives(goals map[string]int, objects []Objective) error {
	all := slices.Clone(objects)
	for _, name := range slices.Sorted(maps.Keys(goals)) {
		priority := goals[name]
		all = append(all, Objective{Name: name, Priority: &priority})
	}
	now := map[goal]bool{}
	var errs []error
	for _, o := range all {
		at := goal{cmp.Or(o.Namespace, namespace), o.Name}
		now[at] = true
		for _, legacy := range []bool{false, true} {
			k := kubeapi.Objective{Legacy: legacy, Namespace: at.namespace, Name: o.Name, Pool: cmp.Or(o.Pool, PoolName), Unset: o.Priority == nil}
			if o.Priority != nil {
				k.Priority = *o.Priority
			}
			errs = append(errs, w.api.Put(k.Object()))
		}
	}
	for at := range w.goals {
		if !now[at] {
			errs = append(errs, w.api.Delete(kubeapi.Objectives, at.namespace, at.name), w.api.Delete(kubeapi.LegacyObjectives, at.namespace, at.name))
		}
	}
	w.goals = now
	text, err := yaml.Marshal(map[string]any{"objectives": goals})
	return errors.Join(append(errs, err, w.write("objectives.yaml", text))...)
}

// watchLimit is how long a program that has begun to use the Kubernetes API may take until it watches everything it needs.
const watchLimit = time.Second

// awaitWatches waits until a program that uses the Kubernetes API watches pods, the pool and objectives, and has been sent all of them.
// One that does not watch them all is not waited for beyond watchLimit: it may not know objectives.
func (w *world) awaitWatches(ctx context.Context) {
	if !w.used() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, watchLimit)
	defer cancel()
	// Neither error is one: a program that does not watch is judged by what it does.
	_ = w.api.AwaitOpen(ctx, func(open map[string]int) bool {
		return open[kubeapi.Pods] > 0 && open[kubeapi.Pools] > 0 && open[kubeapi.Objectives]+open[kubeapi.LegacyObjectives] > 0
	})
	_ = w.api.AwaitDelivered(ctx)
}

// used tells whether somebody has read anything from the Kubernetes API.
func (w *world) used() bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(w.api.Calls())), func(call string) bool {
		return strings.HasPrefix(call, "list ") || strings.HasPrefix(call, "watch ")
	})
}

// calls lists what was asked of the Kubernetes API, for the evidence.
func (w *world) calls() string {
	calls := w.api.Calls()
	var b strings.Builder
	for _, c := range slices.Sorted(maps.Keys(calls)) {
		fmt.Fprintf(&b, "%6d %s\n", calls[c], c)
	}
	return b.String()
}

func (w *world) close() {
	if w.api != nil {
		w.api.Close()
	}
	if w.dir != "" {
		os.RemoveAll(w.dir)
	}
}
