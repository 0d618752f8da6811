package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/env/remote"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/reference/redisq"
)

// parts are what a step may name: component -> Deployment.
var parts = map[string]string{
	"picker": pickerDeployment, "gateway": "weir-gateway", "model-server": "weir-sim-vllm", "processor": "weir-processor", "redis": "weir-redis", "prometheus": "weir-prometheus",
}

// batchQueue is the queue of the deployed processor, resultList where its results are.
const (
	batchQueue = "batch"
	resultList = "result-list"
)

// Stack is the whole deployment of a namespace, seen from a pod in it: clients send to the gateway's Service, and steps take parts away. It is one
// for all scenarios, which are played one after the other.
type Stack struct {
	c      *Client
	ns     string
	before map[string][]types.UID // pods of a part when it was last told to go
	prefix string                 // of the ids that were last put into the queue
	taken  int                    // results of them so far
	seen   map[string]bool        // their ids
	saved  []unstructured.Unstructured
	http   *http.Client
	limit  time.Duration // of a part that is to be there again; 0: what the step says
}

// errNotBack is of a part that is not there again in time.
var errNotBack = errors.New("it is not there again")

// OpenStack finds the deployment of a namespace. A part has settle to be there again; 0: as long as a scenario says.
func (c *Client) OpenStack(ctx context.Context, namespace string, settle time.Duration) (*Stack, error) {
	s := &Stack{c: c, ns: namespace, limit: settle, before: map[string][]types.UID{}, http: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	var missing []string
	for part, name := range parts {
		on, err := c.on(ctx, deploymentKind, namespace)
		if err != nil {
			return nil, err
		}
		if _, err := on.Get(ctx, name, metav1.GetOptions{}); err != nil {
			missing = append(missing, fmt.Sprintf("%s (deployment/%s: %v)", part, name, explain(err)))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, fmt.Errorf("namespace %s lacks %s: weir cluster deploy makes them", namespace, strings.Join(missing, ", "))
	}
	return s, nil
}

// System gives a system in front of the deployment, which is judged as it is configured.
func (s *Stack) System(o remote.Options) (sut.System, error) {
	o.Running = sut.Running{Gateway: s.service("weir-gateway", 8080)}
	o.AsIs, o.Deploy = true, s.deploy
	o.Implementation.Features = append(slices.Clone(o.Implementation.Features), string(sut.Deployed))
	return remote.New(o)
}

func (s *Stack) service(name string, port int) string {
	return "http://" + net.JoinHostPort(name+"."+s.ns+".svc", strconv.Itoa(port))
}

// deploy does one step.
func (s *Stack) deploy(ctx context.Context, st sut.Step) (string, error) {
	limit := st.Limit
	if limit == 0 {
		limit = time.Minute
	}
	switch st.Mode {
	case sut.DeployAsk:
		return s.ask(ctx, st.Raw, st.Endpoint, limit)
	case sut.DeployObject:
		return "", s.object(ctx, st.Endpoint, st.Count)
	case sut.DeployEnqueue:
		return "", s.enqueue(ctx, st.Raw, st.Count)
	case sut.DeployBacklog:
		return s.backlog(ctx)
	case sut.DeployResults:
		return s.results(ctx, st.Count, limit)
	}
	name, ok := parts[st.Endpoint]
	if !ok {
		return "", fmt.Errorf("the deployment has no part %q", st.Endpoint)
	}
	switch st.Mode {
	case sut.DeployScale:
		return "", s.scale(ctx, st.Endpoint, name, st.Count, limit)
	case sut.DeployRollout:
		if err := s.remember(ctx, st.Endpoint); err != nil {
			return "", err
		}
		return "", s.patch(ctx, name, map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			"weir.dev/restarted": clock.Wall().UTC().Format(time.RFC3339Nano)}}}}})
	case sut.DeployKill:
		return s.kill(ctx, st.Endpoint)
	case sut.DeploySettle:
		if s.limit > 0 {
			limit = s.limit
		}
		return s.settle(ctx, st.Endpoint, name, limit)
	case sut.DeployCut:
		return "", s.cut(ctx, limit)
	case sut.DeployMend:
		return "", s.mend(ctx)
	}
	return "", fmt.Errorf("nobody knows how to %q a deployment", st.Mode)
}

func (s *Stack) pods(ctx context.Context, part string) ([]unstructured.Unstructured, error) {
	return s.c.list(ctx, podKind, s.ns, selects(part))
}

// selects is the selector of a part's pods.
func selects(part string) string {
	return "app.kubernetes.io/part-of=weir,app.kubernetes.io/component=" + part
}

func (s *Stack) remember(ctx context.Context, part string) error {
	pods, err := s.pods(ctx, part)
	if err != nil {
		return err
	}
	s.before[part] = nil
	for i := range pods {
		s.before[part] = append(s.before[part], pods[i].GetUID())
	}
	if len(pods) == 0 {
		return fmt.Errorf("there is no pod of %s", part)
	}
	return nil
}

func (s *Stack) patch(ctx context.Context, name string, change map[string]any) error {
	on, err := s.c.on(ctx, deploymentKind, s.ns)
	if err != nil {
		return err
	}
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	if _, err := on.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: manager}); err != nil {
		return fmt.Errorf("deployment/%s: %w", name, explain(err))
	}
	return nil
}

// scale returns when as many pods are ready, and no other one is left.
func (s *Stack) scale(ctx context.Context, part, name string, n int, limit time.Duration) error {
	s.before[part] = nil
	if err := s.patch(ctx, name, map[string]any{"spec": map[string]any{"replicas": n}}); err != nil {
		return err
	}
	_, err := s.settled(ctx, part, name, n, limit)
	return err
}

// settled waits until exactly n pods of a part are there, all of them ready and none of those that were told to go. Where they are not in time it
// is errNotBack, unless the API server did not answer.
func (s *Stack) settled(ctx context.Context, part, name string, n int, limit time.Duration) (pods int, err error) {
	on, err := s.c.on(ctx, deploymentKind, s.ns)
	if err != nil {
		return 0, err
	}
	silent := false
	err = s.c.until(ctx, limit, func(ctx context.Context) (bool, string) {
		silent = true
		d, err := on.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		all, err := s.pods(ctx, part)
		if err != nil {
			return false, err.Error()
		}
		silent = false
		if n >= 0 && len(all) != n {
			return false, fmt.Sprintf("%s has %d pods, %d are wanted", name, len(all), n)
		}
		for i := range all {
			switch {
			case all[i].GetDeletionTimestamp() != nil: // it may still serve whoever is connected to it
				return false, fmt.Sprintf("pod/%s is on its way out", all[i].GetName())
			case slices.Contains(s.before[part], all[i].GetUID()):
				return false, fmt.Sprintf("pod/%s was to go and is still there", all[i].GetName())
			case condition(&all[i], "Ready") != "True":
				why, _ := podTrouble(&all[i])
				return false, why
			}
		}
		pods = len(all)
		return rolledOut(d), name + " is not rolled out"
	})
	if err != nil && !silent {
		err = fmt.Errorf("%w: %w", errNotBack, err)
	}
	return pods, err
}

func (s *Stack) kill(ctx context.Context, part string) (string, error) {
	if err := s.remember(ctx, part); err != nil {
		return "", err
	}
	on, err := s.c.on(ctx, podKind, s.ns)
	if err != nil {
		return "", err
	}
	pods, err := s.pods(ctx, part)
	if err != nil {
		return "", err
	}
	for i := range pods {
		if err := ignoreAbsent(on.Delete(ctx, pods[i].GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})); err != nil {
			return "", fmt.Errorf("%s: %w", title(&pods[i]), explain(err))
		}
	}
	return fmt.Sprintf("%d pods", len(pods)), nil
}

// inARow is how many answers say that the way is open: a Service may lead to several pods.
const inARow = 5

// settle waits until a part is there again, and can be reached, and notes how many pods it has. One that does not come back is noted too: that
// is the check's to judge.
func (s *Stack) settle(ctx context.Context, part, name string, limit time.Duration) (string, error) {
	n, err := s.settled(ctx, part, name, -1, limit)
	if err == nil {
		err = s.open(ctx, part, limit)
	}
	switch {
	case errors.Is(err, errNotBack) && ctx.Err() == nil:
		return evidence.NotBack + err.Error(), nil
	case err != nil:
		return "", err
	}
	return fmt.Sprintf("%d pods", n), nil
}

// open waits until a part can be reached.
func (s *Stack) open(ctx context.Context, part string, limit time.Duration) error {
	good := 0
	err := s.c.until(ctx, limit, func(ctx context.Context) (bool, string) {
		for good < inARow {
			if err := s.reached(ctx, part); err != nil {
				good = 0
				return false, part + " is ready, but cannot be reached: " + err.Error()
			}
			good++
		}
		return true, ""
	})
	if err != nil {
		err = fmt.Errorf("%w: %w", errNotBack, err)
	}
	return err
}

// reached asks for a part in the way its users do.
func (s *Stack) reached(ctx context.Context, part string) error {
	switch part {
	case "picker", "gateway", "model-server":
		body := `{"model":"` + env.Model + `","prompt":"are you there","max_tokens":1}`
		return s.ok(ctx, http.MethodPost, s.service("weir-gateway", 8080)+"/v1/completions", body)
	case "prometheus":
		return s.ok(ctx, http.MethodGet, s.service("weir-prometheus", 9090)+"/-/ready", "")
	case "redis":
		c := redisq.AddressClient(net.JoinHostPort("weir-redis."+s.ns+".svc", "6379"))
		return errors.Join(c.Ping(ctx).Err(), c.Close())
	}
	return nil
}

func (s *Stack) ok(ctx context.Context, method, address, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return err
}

// ask puts a query until its answer is the one that is waited for, and notes the last one.
func (s *Stack) ask(ctx context.Context, query, want string, limit time.Duration) (string, error) {
	said := ""
	err := s.c.until(ctx, limit, func(ctx context.Context) (bool, string) {
		var why string
		said, why = s.answer(ctx, query)
		return said == want, why
	})
	if said != "" {
		return said, nil // another answer is the check's to judge
	}
	return said, err
}

// answer is the value of a query with one sample; "none" without any.
func (s *Stack) answer(ctx context.Context, query string) (value, why string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.service("weir-prometheus", 9090)+"/api/v1/query?"+url.Values{"query": {query}}.Encode(), nil)
	if err != nil {
		return "", err.Error()
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return "", err.Error()
	}
	defer resp.Body.Close()
	var a struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return "", err.Error()
	}
	switch {
	case a.Status != "success":
		return "", a.Error
	case len(a.Data.Result) == 0:
		return "none", "no sample"
	case len(a.Data.Result) > 1:
		return fmt.Sprintf("%d samples", len(a.Data.Result)), "more than one sample"
	}
	v, _ := a.Data.Result[0].Value[1].(string)
	return v, "the answer is " + v
}

func (s *Stack) object(ctx context.Context, name string, priority int) error {
	o := &unstructured.Unstructured{Object: Object{"apiVersion": objectiveKind.GroupVersion().String(), "kind": objectiveKind.Kind,
		"metadata": map[string]any{"name": name, "namespace": s.ns}, "spec": map[string]any{"priority": int64(priority),
			"poolRef": map[string]any{"group": poolKind.Group, "kind": poolKind.Kind, "name": poolName}}}}
	if priority != sut.DeployGone {
		return s.c.apply(ctx, o, false)
	}
	on, err := s.c.on(ctx, objectiveKind, s.ns)
	if err != nil {
		return err
	}
	return ignoreAbsent(on.Delete(ctx, name, metav1.DeleteOptions{}))
}

// cut keeps everybody but the gateway from the model servers. A network that does not care shows nothing.
func (s *Stack) cut(ctx context.Context, limit time.Duration) error {
	on, err := s.c.on(ctx, policyKind, s.ns)
	if err != nil {
		return err
	}
	all, err := s.c.list(ctx, policyKind, s.ns, "")
	if err != nil {
		return err
	}
	for i := range all {
		if !strings.HasSuffix(all[i].GetName(), "model-servers") {
			continue
		}
		s.saved = append(s.saved, *all[i].DeepCopy())
		body := `{"spec":{"ingress":[{"from":[{"podSelector":{"matchLabels":{"app.kubernetes.io/part-of":"weir","app.kubernetes.io/component":"gateway"}}}],"ports":[{"port":"http"}]}]}}`
		if _, err := on.Patch(ctx, all[i].GetName(), types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: manager}); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", title(&all[i]), explain(err)), s.mend(ctx))
		}
	}
	pods, err := s.pods(ctx, "model-server")
	if err != nil || len(pods) == 0 {
		return errors.Join(errors.New("there is no model server"), err, s.mend(ctx))
	}
	address := net.JoinHostPort(text(pods[0].Object, "status", "podIP"), strconv.Itoa(serverPort))
	err = s.c.until(ctx, min(limit, 10*time.Second), func(ctx context.Context) (bool, string) {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			return true, ""
		}
		_ = c.Close()
		return false, "a model server can still be reached"
	})
	if err != nil {
		return errors.Join(&sut.UnsupportedError{Feature: sut.Deployed, Why: "the network of this cluster enforces no NetworkPolicy"}, s.mend(ctx))
	}
	return nil
}

// mend takes a cut back.
func (s *Stack) mend(ctx context.Context) error {
	on, err := s.c.on(ctx, policyKind, s.ns)
	if err != nil {
		return err
	}
	var errs []error
	for i := range s.saved {
		ingress, _, _ := unstructured.NestedSlice(s.saved[i].Object, "spec", "ingress")
		body, err := json.Marshal(map[string]any{"spec": map[string]any{"ingress": ingress}})
		if err == nil {
			_, err = on.Patch(ctx, s.saved[i].GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: manager})
		}
		errs = append(errs, err)
	}
	s.saved = nil
	return errors.Join(errs...)
}

// enqueue puts requests into the processor's queue.
func (s *Stack) enqueue(ctx context.Context, prefix string, n int) error {
	c := redisq.AddressClient(net.JoinHostPort("weir-redis."+s.ns+".svc", "6379"))
	defer func() { _ = c.Close() }()
	s.prefix, s.taken, s.seen = prefix, 0, map[string]bool{}
	for i := range n {
		// Each takes longer than a node gives a pod that is killed, so that some of them are on their way to the last.
		m := sut.AsyncMessage{ID: fmt.Sprintf("%s-%d", prefix, i), Deadline: 10 * time.Minute, Payload: `{"model":"` + env.Model + `","prompt":"a page","max_tokens":300}`}
		if _, err := redisq.Submit(ctx, c, batchQueue, "", env.BatchRequest(prefix, m, clock.Wall()), clock.Wall()); err != nil {
			return fmt.Errorf("after %d of %d requests: %w", i, n, err)
		}
	}
	return nil
}

// backlog looks into the queue.
func (s *Stack) backlog(ctx context.Context) (string, error) {
	c := redisq.AddressClient(net.JoinHostPort("weir-redis."+s.ns+".svc", "6379"))
	defer func() { _ = c.Close() }()
	n, err := c.ZCard(ctx, batchQueue).Result()
	return map[bool]string{true: "yes", false: "no"}[n > 0], err
}

// results takes results of what was put there last, until there are so many or the time is over, and notes how many, of how many ids that were not
// seen before; with a number of 0 all of them so far. A result that is not a success is named, and ends it.
func (s *Stack) results(ctx context.Context, n int, limit time.Duration) (string, error) {
	c := redisq.AddressClient(net.JoinHostPort("weir-redis."+s.ns+".svc", "6379"))
	defer func() { _ = c.Close() }()
	if n == 0 {
		return fmt.Sprintf("%d results of %d ids", s.taken, len(s.seen)), nil
	}
	clk, fresh, taken := clock.NewReal(), 0, 0
	end := clk.Now() + limit
	for taken < n && clk.Now() < end && ctx.Err() == nil {
		raw, err := redisq.Receive(ctx, c, resultList, time.Second)
		if err != nil {
			return "", fmt.Errorf("after %d results: %w", taken, err)
		}
		var r struct {
			ID     string `json:"id"`
			Status int    `json:"status_code"`
			Code   string `json:"error_code"`
		}
		if len(raw) == 0 || json.Unmarshal(raw, &r) != nil || !strings.HasPrefix(r.ID, s.prefix+"-") {
			continue
		}
		taken++
		s.taken++
		if !s.seen[r.ID] {
			fresh++
		}
		s.seen[r.ID] = true
		if r.Status != http.StatusOK {
			return fmt.Sprintf("%s ended with status %d %s", r.ID, r.Status, r.Code), nil
		}
	}
	return fmt.Sprintf("%d results of %d ids", taken, fresh), nil
}
