package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/cluster/errand"
)

// Errand is a run of this program inside the cluster, in one pod or in several that share the work.
type Errand struct {
	Name      string
	Namespace string
	Image     string
	Account   string            // service account; "": the namespace's default one, without a token
	Component string            // label that the NetworkPolicies know: "certify", "load"
	Args      []string          // of this program
	Files     map[string]string // name -> content, under errand.Files
	Workers   int               // 0: one
	CPU       string            // request of each; "": 100m
	Limit     time.Duration     // of the whole; 0: an hour
	Out       io.Writer         // what it prints
	// Begin is called when every worker waits to be told when to begin; nil: none waits.
	Begin func(ctx context.Context, workers []*Worker) error
}

// Worker is one pod of an errand.
type Worker struct {
	c     *Client
	ns    string
	pod   string
	Index int
}

// Run makes the pods, passes on what they print, brings their results to dir/INDEX (or dir, of one), and removes them again. It gives the largest exit
// status.
func (c *Client) Run(ctx context.Context, e Errand, dir string) (status int, err error) {
	e.Workers = max(1, e.Workers)
	if e.Limit == 0 {
		e.Limit = time.Hour
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.Limit, fmt.Errorf("%s has not ended within %s", e.Name, e.Limit))
	defer cancel()
	objects := e.objects()
	if err := c.Remove(ctx, objects, false); err != nil { // of a run that nobody ended
		return -1, err
	}
	if err := c.Apply(ctx, objects); err != nil {
		return -1, err
	}
	defer func() {
		err = errors.Join(err, c.Remove(context.WithoutCancel(ctx), objects, false))
	}()
	workers, err := c.workers(ctx, e)
	if err != nil {
		return -1, err
	}
	var logs sync.WaitGroup
	out := &lines{w: e.Out}
	following, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		logs.Wait()
	}()
	for _, w := range workers {
		prefix := ""
		if len(workers) > 1 {
			prefix = fmt.Sprintf("[%d] ", w.Index)
		}
		logs.Go(func() { w.follow(following, out, prefix) })
	}
	if e.Begin != nil {
		if err := e.Begin(ctx, workers); err != nil {
			return -1, err
		}
	}
	results := make([]errand.Status, len(workers))
	errs := make([]error, len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		at := dir
		if len(workers) > 1 {
			at = filepath.Join(dir, fmt.Sprint(w.Index))
		}
		all.Go(func() {
			if results[i], errs[i] = w.await(ctx); errs[i] == nil {
				errs[i] = w.fetch(ctx, results[i], at)
			}
		})
	}
	all.Wait()
	for i, s := range results {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("worker %d: %w", i, errs[i])
		}
		status = max(status, s.Exit)
	}
	return status, errors.Join(errs...)
}

// objects are the Job and its files.
func (e Errand) objects() []Object {
	labels := map[string]any{"app.kubernetes.io/part-of": "weir", "app.kubernetes.io/component": e.Component}
	meta := func() map[string]any {
		return map[string]any{"name": e.Name, "namespace": e.Namespace, "labels": labels}
	}
	files := map[string]any{}
	for name, content := range e.Files {
		files[name] = content
	}
	cpu := e.CPU
	if cpu == "" {
		cpu = "100m"
	}
	var args []any
	for _, a := range append([]string{"errand", "--results", errand.Results, "--addr", fmt.Sprintf(":%d", errand.Port), "--"}, e.Args...) {
		args = append(args, a)
	}
	container := map[string]any{
		"name": "errand", "image": e.Image, "args": args, "workingDir": errand.Scratch,
		"env": []any{
			map[string]any{"name": "NAMESPACE", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "metadata.namespace"}}},
			map[string]any{"name": "TMPDIR", "value": errand.Scratch}, map[string]any{"name": "HOME", "value": errand.Scratch},
		},
		"ports":     []any{map[string]any{"name": "errand", "containerPort": int64(errand.Port)}},
		"resources": map[string]any{"requests": map[string]any{"cpu": cpu, "memory": "128Mi"}, "limits": map[string]any{"cpu": "8", "memory": "4Gi"}},
		"securityContext": map[string]any{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
			"capabilities": map[string]any{"drop": []any{"ALL"}}},
		"volumeMounts": []any{map[string]any{"name": "results", "mountPath": errand.Results}, map[string]any{"name": "scratch", "mountPath": errand.Scratch},
			map[string]any{"name": "files", "mountPath": errand.Files, "readOnly": true}},
	}
	pod := map[string]any{
		"restartPolicy": "Never", "enableServiceLinks": false, "automountServiceAccountToken": e.Account != "", "terminationGracePeriodSeconds": int64(5),
		"securityContext": map[string]any{"runAsNonRoot": true, "runAsUser": int64(65532), "runAsGroup": int64(65532), "fsGroup": int64(65532),
			"seccompProfile": map[string]any{"type": "RuntimeDefault"}},
		"containers": []any{container},
		"volumes": []any{map[string]any{"name": "results", "emptyDir": map[string]any{"sizeLimit": "2Gi"}}, map[string]any{"name": "scratch", "emptyDir": map[string]any{"sizeLimit": "2Gi"}},
			map[string]any{"name": "files", "configMap": map[string]any{"name": e.Name}}},
	}
	if e.Account != "" {
		pod["serviceAccountName"] = e.Account
	}
	job := map[string]any{
		"completions": int64(e.Workers), "parallelism": int64(e.Workers), "completionMode": "Indexed", "backoffLimit": int64(0),
		"activeDeadlineSeconds": int64(e.Limit / time.Second), "ttlSecondsAfterFinished": int64(600),
		"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod},
	}
	// The namespace may deny whatever no policy allows. Whoever sent it comes through the API server, which no selector finds.
	own := map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"batch.kubernetes.io/job-name": e.Name}}, "policyTypes": []any{"Ingress", "Egress"},
		"ingress": []any{map[string]any{"ports": []any{map[string]any{"port": "errand"}}}}, "egress": []any{map[string]any{}}}
	return []Object{
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(), "data": files},
		{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta(), "spec": own},
		{"apiVersion": "batch/v1", "kind": "Job", "metadata": meta(), "spec": job},
	}
}

// startLimit is how long pods may take to run.
const startLimit = 3 * time.Minute

// workers waits until every pod runs and answers.
func (c *Client) workers(ctx context.Context, e Errand) ([]*Worker, error) {
	own := func(p *unstructured.Unstructured) bool {
		return p.GetLabels()["batch.kubernetes.io/job-name"] == e.Name
	}
	var found []*Worker
	var hopeless error
	err := c.until(ctx, startLimit, func(ctx context.Context) (bool, string) {
		pods, err := c.list(ctx, podKind, e.Namespace, "batch.kubernetes.io/job-name="+e.Name)
		if err != nil {
			return false, err.Error()
		}
		found = found[:0]
		for i := range pods {
			w := &Worker{c: c, ns: e.Namespace, pod: pods[i].GetName()}
			if _, err := fmt.Sscan(pods[i].GetLabels()["batch.kubernetes.io/job-completion-index"], &w.Index); err != nil {
				continue
			}
			if phase := text(pods[i].Object, "status", "phase"); phase == "Failed" {
				hopeless = fmt.Errorf("pod/%s has ended: %s", w.pod, c.tail(ctx, w))
				return true, ""
			}
			if _, err := w.status(ctx); err == nil {
				found = append(found, w)
			}
		}
		if len(found) == e.Workers {
			return true, ""
		}
		why, fatal := c.unready(ctx, e.Namespace, own)
		if text := c.jobTrouble(ctx, e); text != "" {
			why, fatal = text, true
		}
		if fatal {
			hopeless = fmt.Errorf("%s: %s", e.Name, why)
		}
		return fatal, fmt.Sprintf("%s: %d of %d pods answer: %s", e.Name, len(found), e.Workers, why)
	})
	slices.SortFunc(found, func(a, b *Worker) int { return a.Index - b.Index })
	return found, errors.Join(hopeless, err)
}

// jobTrouble is why the Job's controller made no pods; "" if nothing is known. Events outlive the Job of an earlier run, which had the same name.
func (c *Client) jobTrouble(ctx context.Context, e Errand) string {
	on, err := c.on(ctx, jobKind, e.Namespace)
	if err != nil {
		return ""
	}
	job, err := on.Get(ctx, e.Name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	events, err := c.list(ctx, eventKind, e.Namespace, "")
	if err != nil {
		return ""
	}
	for i := range events {
		o := events[i].Object
		if text(o, "involvedObject", "uid") == string(job.GetUID()) && text(o, "reason") == "FailedCreate" {
			return explain(errors.New(text(o, "message"))).Error()
		}
	}
	return ""
}

func (c *Client) tail(ctx context.Context, w *Worker) string {
	log, err := c.get(ctx, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/log?tailLines=20", w.ns, w.pod))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(log))
}

// path is where the API server passes a call on to the pod.
func (w *Worker) path(call string) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/pods/http:%s:%d/proxy/%s", w.ns, w.pod, errand.Port, call)
}

func (w *Worker) status(ctx context.Context) (errand.Status, error) {
	var s errand.Status
	text, err := w.c.get(ctx, w.path("status"))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

// Clock reads the worker's clock; ask before and after.
func (w *Worker) Clock(ctx context.Context) (unixNano int64, err error) {
	s, err := w.status(ctx)
	return s.Now, err
}

// Waits tells whether the worker waits to be told when to begin.
func (w *Worker) Waits(ctx context.Context) (bool, error) {
	s, err := w.status(ctx)
	return s.Waiting, err
}

// Begin tells the worker when to begin, by its own clock.
func (w *Worker) Begin(ctx context.Context, unixNano int64) error {
	body, err := w.c.open(ctx, http.MethodPost, w.path("begin?at="+fmt.Sprint(unixNano)))
	if err != nil {
		return err
	}
	return body.Close()
}

// patience is how long the way to a pod may be cut.
const patience = 30 * time.Second

// await returns how the errand has ended in a pod.
func (w *Worker) await(ctx context.Context) (errand.Status, error) {
	c := clock.NewReal()
	heard := c.Now()
	for {
		s, err := w.status(ctx)
		switch {
		case err == nil && s.Done:
			return s, nil
		case err == nil:
			heard = c.Now()
		case ctx.Err() == nil && c.Now()-heard > patience:
			return s, fmt.Errorf("pod/%s has not answered for %s: %w; the last of its log: %s", w.pod, patience, err, w.c.tail(ctx, w))
		}
		if err != nil {
			if gone := w.gone(ctx); gone != nil {
				return s, gone
			}
		}
		if !clock.Sleep(ctx, time.Second) {
			return s, context.Cause(ctx)
		}
	}
}

// gone says that the pod has ended, or is not there any more; nil if it may yet answer.
func (w *Worker) gone(ctx context.Context) error {
	on, err := w.c.on(ctx, podKind, w.ns)
	if err != nil {
		return err
	}
	p, err := on.Get(ctx, w.pod, metav1.GetOptions{})
	switch {
	case ignoreAbsent(err) == nil && err != nil:
		return fmt.Errorf("pod/%s was deleted while it worked", w.pod)
	case err == nil && slices.Contains([]string{"Failed", "Succeeded"}, text(p.Object, "status", "phase")):
		return fmt.Errorf("pod/%s has ended before its results were taken (%s %s): %s", w.pod, text(p.Object, "status", "reason"), text(p.Object, "status", "message"), w.c.tail(ctx, w))
	}
	return nil
}

// fetch brings the results here, and lets the pod end.
func (w *Worker) fetch(ctx context.Context, s errand.Status, dir string) error {
	var err error
	for range 3 { // a connection through the API server may be cut
		if err = w.take(ctx, s, dir); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("results of pod/%s: %w", w.pod, err)
	}
	if body, err := w.c.open(ctx, http.MethodPost, w.path("taken")); err == nil { // otherwise it ends by itself
		_ = body.Close()
	}
	return nil
}

func (w *Worker) take(ctx context.Context, s errand.Status, dir string) error {
	body, err := w.c.open(ctx, http.MethodGet, w.path("results"))
	if err != nil {
		return err
	}
	defer body.Close()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errand.Unpack(body, dir, s.SHA256)
}

// lines writes whole lines of several pods.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) print(prefix, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w != nil {
		fmt.Fprintln(l.w, prefix+line)
	}
}

// follow passes on what a pod prints, and goes on where a stream was cut.
func (w *Worker) follow(ctx context.Context, out *lines, prefix string) {
	last, same := "", 0 // instant of the last line, and how many lines have it
	for ctx.Err() == nil {
		q := url.Values{"follow": {"true"}, "timestamps": {"true"}}
		if last != "" {
			q.Set("sinceTime", last)
		}
		body, err := w.c.open(ctx, http.MethodGet, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/log?%s", w.ns, w.pod, q.Encode()))
		if err == nil {
			skip := same
			in := bufio.NewScanner(body)
			in.Buffer(nil, 1<<20)
			for in.Scan() {
				at, line, _ := strings.Cut(in.Text(), " ")
				if at == last && skip > 0 {
					skip--
					continue
				}
				if at != last {
					last, same = at, 0
				}
				same++
				out.print(prefix, line)
			}
			body.Close()
		}
		clock.Sleep(ctx, pause)
	}
}
