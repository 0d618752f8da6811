package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/env/remote"
	"github.com/llm-weir/weir/harness/sut"
)

// Names and labels of what manifests/certify deploys.
const (
	pickerDeployment = "weir-picker"
	poolName         = "weir"
	serverPart       = "model-server"
	memberLabel      = "weir.dev/member" // of model servers that the pool is to select
	roleLabel        = "llm-d.ai/role"
	scenarioLabel    = "weir.dev/scenario" // of what a scenario makes
	laneLabel        = "weir.dev/lane"     // of what makes up a lane, its namespace included where a run has made it
	grpcPort         = 9002
	healthPort       = 9003
	metricsPort      = 9090
	serverPort       = 8000
)

// Lane is a namespace with what surrounds one picker: model servers, pool, Services, policies. For each scenario it gets a picker of its own: a pod
// of the deployed Deployment's template, under the scenario's configuration. It implements remote.Driver.
type Lane struct {
	c        *Client
	ns       string
	template Object // pod template of the deployed picker
	sims     []server
	picker   string // name of the running pod; "": none
	config   string // name of its ConfigMap
	made     int    // names given so far
	labels   map[string]map[string]string
}

// server is a model server.
type server struct{ name, ip string }

var _ remote.Driver = (*Lane)(nil)

// OpenLane finds what is deployed in a namespace.
func (c *Client) OpenLane(ctx context.Context, namespace string) (*Lane, error) {
	l := &Lane{c: c, ns: namespace, labels: map[string]map[string]string{}}
	on, err := c.on(ctx, deploymentKind, namespace)
	if err != nil {
		return nil, err
	}
	d, err := on.Get(ctx, pickerDeployment, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("deployment/%s in %s: %w", pickerDeployment, namespace, explain(err))
	}
	l.template, _, _ = unstructured.NestedMap(d.Object, "spec", "template")
	pods, err := c.list(ctx, podKind, namespace, selects(serverPart))
	if err != nil {
		return nil, err
	}
	for i := range pods {
		ip := text(pods[i].Object, "status", "podIP")
		if ip == "" || condition(&pods[i], "Ready") != "True" {
			return nil, fmt.Errorf("%s is not ready", title(&pods[i]))
		}
		l.sims = append(l.sims, server{pods[i].GetName(), ip})
		l.labels[pods[i].GetName()] = pods[i].GetLabels()
	}
	if len(l.sims) == 0 {
		return nil, fmt.Errorf("there is no model server in %s (labels %s)", namespace, selects(serverPart))
	}
	return l, l.clear(ctx)
}

// Running says where the model servers are.
func (l *Lane) Running() sut.Running {
	r := sut.Running{Simulators: map[string]string{}}
	for _, s := range l.sims {
		r.Simulators[s.name] = "http://" + net.JoinHostPort(s.ip, strconv.Itoa(serverPort))
	}
	r.Configure.Limit = 90 * time.Second
	return r
}

// Configure implements remote.Driver.
func (l *Lane) Configure(ctx context.Context, w remote.Wanted) (remote.Reach, error) {
	if err := l.clear(ctx); err != nil {
		return remote.Reach{}, err
	}
	if err := l.tell(ctx, w); err != nil {
		return remote.Reach{}, err
	}
	config, err := l.document(ctx, w.Document)
	if err != nil {
		return remote.Reach{}, err
	}
	l.config = config
	return l.Start(ctx)
}

// Start implements remote.Driver.
func (l *Lane) Start(ctx context.Context) (remote.Reach, error) {
	name, err := l.launch(ctx, l.config, true)
	if err != nil {
		return remote.Reach{}, err
	}
	l.picker = name
	ip, err := l.serves(ctx, name)
	at := func(port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }
	return remote.Reach{Front: at(grpcPort), Health: at(healthPort), Metrics: "http://" + at(metricsPort) + "/metrics"}, err
}

// Stop implements remote.Driver: the pod is given the time that its template says.
func (l *Lane) Stop(ctx context.Context) error {
	name := l.picker
	l.picker = ""
	return l.end(ctx, name, nil)
}

// Update implements remote.Driver. Nothing that every picker has tells what it has heard of, so it is given time.
func (l *Lane) Update(ctx context.Context, w remote.Wanted) error {
	if err := l.tell(ctx, w); err != nil {
		return err
	}
	clock.Sleep(ctx, delivery)
	return ctx.Err()
}

// delivery is how long a change of an object may take to a picker that watches.
const delivery = 250 * time.Millisecond

// Try implements remote.Driver.
func (l *Lane) Try(ctx context.Context, document string, stable bool) error {
	config, err := l.document(ctx, document)
	if err != nil {
		return err
	}
	name, err := l.launch(ctx, config, !stable)
	if err != nil {
		return err
	}
	_, err = l.serves(ctx, name)
	return errors.Join(err, l.end(context.WithoutCancel(ctx), name, new(int64)))
}

// Close ends the picker and takes back what the scenario made.
func (l *Lane) Close(ctx context.Context) error { return l.clear(ctx) }

// clear removes every picker, configuration and objective that a scenario has made, and returns when no picker is left.
func (l *Lane) clear(ctx context.Context) error {
	l.picker = ""
	pods, err := l.c.list(ctx, podKind, l.ns, scenarioLabel)
	errs := []error{err}
	for i := range pods {
		errs = append(errs, l.end(ctx, pods[i].GetName(), new(int64)))
	}
	on, err := l.c.on(ctx, configKind, l.ns)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	configs, err := l.c.list(ctx, configKind, l.ns, scenarioLabel)
	errs = append(errs, err)
	for i := range configs {
		errs = append(errs, ignoreAbsent(on.Delete(ctx, configs[i].GetName(), metav1.DeleteOptions{})))
	}
	return errors.Join(errs...)
}

func ignoreAbsent(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// name gives a name that this lane has not given before.
func (l *Lane) name(kind string) string {
	l.made++
	return fmt.Sprintf("weir-%s-%s-%d", kind, strconv.FormatInt(clock.Wall().UnixMilli(), 36), l.made)
}

// document makes a ConfigMap of a configuration.
func (l *Lane) document(ctx context.Context, document string) (string, error) {
	on, err := l.c.on(ctx, configKind, l.ns)
	if err != nil {
		return "", err
	}
	o := Object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": l.name("epp"), "labels": map[string]any{scenarioLabel: "true"}}, "immutable": true,
		"data": map[string]any{"epp.yaml": document}}
	made, err := on.Create(ctx, &unstructured.Unstructured{Object: o}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("configuration of the picker: %w", explain(err))
	}
	return made.GetName(), nil
}

// launch makes a pod of the template with a configuration.
func (l *Lane) launch(ctx context.Context, config string, alpha bool) (string, error) {
	pod := (&unstructured.Unstructured{Object: l.template}).DeepCopy()
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName(l.name("picker"))
	labels := pod.GetLabels()
	labels[scenarioLabel] = "true"
	pod.SetLabels(labels)
	unstructured.RemoveNestedField(pod.Object, "metadata", "creationTimestamp")
	set := func(v any, path ...string) { _ = unstructured.SetNestedField(pod.Object, v, path...) }
	set("Never", "spec", "restartPolicy") // one that ends is to be seen as it ended
	volumes, _, _ := unstructured.NestedSlice(pod.Object, "spec", "volumes")
	for _, v := range volumes {
		if m := v.(map[string]any); m["name"] == "config" {
			m["configMap"] = map[string]any{"name": config}
		}
	}
	set(volumes, "spec", "volumes")
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	first := containers[0].(map[string]any)
	delete(first, "lifecycle") // it waits for Services to notice, and none leads to a lane's picker: its end begins when it is told to end
	if alpha {
		args, _ := first["args"].([]any)
		first["args"] = append(args, "--allow-experimental-plugins")
	}
	set(containers, "spec", "containers")
	on, err := l.c.on(ctx, podKind, l.ns)
	if err != nil {
		return "", err
	}
	if _, err := on.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("pod of the picker: %w", explain(err))
	}
	return pod.GetName(), nil
}

// glance is between two looks at a pod that is about to be there.
const glance = 50 * time.Millisecond

// serves returns the address of a pod once its picker says SERVING; one that ends before is a *binary.StartError with what it printed.
func (l *Lane) serves(ctx context.Context, name string) (string, error) {
	on, err := l.c.on(ctx, podKind, l.ns)
	if err != nil {
		return "", err
	}
	last := "it has not been started"
	for {
		p, err := on.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			ip := text(p.Object, "status", "podIP")
			switch phase := text(p.Object, "status", "phase"); {
			case phase == "Failed" || phase == "Succeeded":
				return "", l.ended(ctx, p)
			case phase == "Running" && ip != "":
				said, herr := env.Health(ctx, net.JoinHostPort(ip, strconv.Itoa(healthPort)))
				if said == "SERVING" {
					return ip, nil
				}
				last = "its health service says " + said
				if herr != nil {
					last = "its health service: " + herr.Error()
				}
			default:
				last, _ = podTrouble(p)
			}
		} else if ctx.Err() == nil {
			last = err.Error()
		}
		if !clock.Sleep(ctx, glance) {
			return "", &binary.StartError{Argv: []string{"pod/" + name}, ExitCode: -1, Why: "it does not serve: " + last + ": " + context.Cause(ctx).Error(), Output: l.log(context.WithoutCancel(ctx), name)}
		}
	}
}

// ended is the error of a picker that has ended.
func (l *Lane) ended(ctx context.Context, p *unstructured.Unstructured) error {
	e := &binary.StartError{Argv: []string{"pod/" + p.GetName()}, Ended: true, ExitCode: -1, Output: l.log(ctx, p.GetName())}
	statuses, _, _ := unstructured.NestedSlice(p.Object, "status", "containerStatuses")
	for _, x := range statuses {
		s, _ := x.(map[string]any)
		if code, ok, _ := unstructured.NestedInt64(s, "state", "terminated", "exitCode"); ok {
			e.ExitCode = int(code)
		}
	}
	e.Why = fmt.Sprintf("it ended with exit status %d", e.ExitCode)
	return e
}

// log is the last that a pod has printed.
func (l *Lane) log(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	log, err := l.c.get(ctx, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/log?tailLines=200&limitBytes=65536", l.ns, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(log))
}

// end deletes a pod and returns when it is gone; grace is in seconds, nil as its template says. Without a grace period the API forgets a pod before its
// node has killed it, and until then it goes on scraping.
func (l *Lane) end(ctx context.Context, name string, grace *int64) error {
	if name == "" {
		return nil
	}
	on, err := l.c.on(ctx, podKind, l.ns)
	if err != nil {
		return err
	}
	ip := ""
	if p, err := on.Get(ctx, name, metav1.GetOptions{}); err == nil && slices.Contains([]string{"Running", "Pending"}, text(p.Object, "status", "phase")) {
		ip = text(p.Object, "status", "podIP")
	}
	if err := ignoreAbsent(on.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: grace})); err != nil {
		return fmt.Errorf("pod/%s: %w", name, explain(err))
	}
	for {
		if _, err := on.Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) && !listens(ctx, ip) {
			return nil
		}
		if !clock.Sleep(ctx, glance) {
			return fmt.Errorf("pod/%s is still there: %w", name, context.Cause(ctx))
		}
	}
}

// listens tells whether a picker is still alive at an address; "" is none.
func listens(ctx context.Context, ip string) bool {
	if ip == "" {
		return false
	}
	c, err := (&net.Dialer{Timeout: pause}).DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(metricsPort)))
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// tell makes pool and objectives what a scenario wants.
func (l *Lane) tell(ctx context.Context, w remote.Wanted) error {
	if err := l.objectives(ctx, w); err != nil {
		return err
	}
	return l.pool(ctx, w.Members)
}

// label changes labels of a pod; nil takes one away.
func (c *Client) label(ctx context.Context, namespace, pod string, labels map[string]any) (*unstructured.Unstructured, error) {
	on, err := c.on(ctx, podKind, namespace)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return nil, err
	}
	p, err := on.Patch(ctx, pod, types.MergePatchType, body, metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		return nil, fmt.Errorf("labels of pod/%s: %w", pod, explain(err))
	}
	return p, nil
}

// pool labels the model servers, so that the pool's selector finds those that belong to it.
func (l *Lane) pool(ctx context.Context, members []remote.Member) error {
	for _, s := range l.sims {
		i := slices.IndexFunc(members, func(m remote.Member) bool { return m.Own == s.name })
		want := map[string]string{}
		if i >= 0 {
			want[memberLabel] = "true"
			if members[i].Role != "" {
				want[roleLabel] = members[i].Role
			}
		}
		patch := map[string]any{}
		for _, label := range []string{memberLabel, roleLabel} {
			now, has := l.labels[s.name][label]
			v, wanted := want[label]
			switch {
			case wanted && (!has || now != v):
				patch[label] = v
			case !wanted && has:
				patch[label] = nil
			}
		}
		if len(patch) == 0 {
			continue
		}
		p, err := l.c.label(ctx, l.ns, s.name, patch)
		if err != nil {
			return err
		}
		l.labels[s.name] = p.GetLabels()
	}
	return nil
}

// objectives makes the InferenceObjectives of the namespace those of a scenario.
func (l *Lane) objectives(ctx context.Context, w remote.Wanted) error {
	on, err := l.c.on(ctx, objectiveKind, l.ns)
	if err != nil {
		return err
	}
	all := slices.Clone(w.Objects)
	for name, p := range w.Objectives {
		all = append(all, sut.Objective{Name: name, Priority: &p})
	}
	want := map[string]bool{}
	for _, x := range all {
		if x.Namespace != "" && x.Namespace != l.ns {
			return &sut.UnsupportedError{Feature: sut.KubeAPI, Why: "it needs an objective in another namespace, where nothing is made"}
		}
		want[x.Name] = true
		spec := map[string]any{"poolRef": map[string]any{"group": poolKind.Group, "kind": poolKind.Kind, "name": cmp.Or(x.Pool, poolName)}}
		if x.Priority != nil {
			spec["priority"] = int64(*x.Priority)
		}
		o := &unstructured.Unstructured{Object: Object{"apiVersion": objectiveKind.GroupVersion().String(), "kind": objectiveKind.Kind,
			"metadata": map[string]any{"name": x.Name, "namespace": l.ns, "labels": map[string]any{laneLabel: "true"}}, "spec": spec}}
		if err := l.c.apply(ctx, o, false); err != nil {
			return err
		}
	}
	now, err := l.c.list(ctx, objectiveKind, l.ns, "")
	if err != nil {
		return err
	}
	for i := range now {
		if !want[now[i].GetName()] {
			if err := ignoreAbsent(on.Delete(ctx, now[i].GetName(), metav1.DeleteOptions{})); err != nil {
				return fmt.Errorf("%s: %w", title(&now[i]), explain(err))
			}
		}
	}
	return nil
}
