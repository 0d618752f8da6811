package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AwaitReady returns when every Deployment of a namespace has all its pods ready in their newest version, or says which pod is not and why. What
// no waiting mends is told at once.
func (c *Client) AwaitReady(ctx context.Context, namespace string, limit time.Duration) error {
	var hopeless error
	err := c.until(ctx, limit, func(ctx context.Context) (bool, string) {
		deployments, err := c.list(ctx, deploymentKind, namespace, "")
		if err != nil {
			return false, err.Error()
		}
		var late []string
		for i := range deployments {
			if !rolledOut(&deployments[i]) {
				late = append(late, deployments[i].GetName())
			}
		}
		if len(late) == 0 {
			return true, ""
		}
		why, fatal := c.unready(ctx, namespace, nil)
		text := fmt.Sprintf("%s in %s: not ready: %s", strings.Join(late, ", "), namespace, why)
		if fatal {
			hopeless = errors.New(text)
		}
		return fatal, text
	})
	return errors.Join(hopeless, err)
}

// rolledOut tells whether what a Deployment asks for is there and nothing else of it.
func rolledOut(d *unstructured.Unstructured) bool {
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(d.Object, path...)
		return n
	}
	want := number("spec", "replicas")
	return number("status", "observedGeneration") >= d.GetGeneration() && number("status", "updatedReplicas") == want && number("status", "readyReplicas") == want &&
		number("status", "replicas") == want
}

// unready says what keeps the pods of a namespace, or those of them that want says, from being ready, and whether waiting is of no use.
func (c *Client) unready(ctx context.Context, namespace string, want func(*unstructured.Unstructured) bool) (why string, fatal bool) {
	pods, err := c.list(ctx, podKind, namespace, "")
	if err != nil {
		return err.Error(), false
	}
	var lines []string
	for i := range pods {
		if want != nil && !want(&pods[i]) || condition(&pods[i], "Ready") == "True" {
			continue
		}
		text, hopeless := podTrouble(&pods[i])
		lines = append(lines, text)
		fatal = fatal || hopeless
	}
	if text := c.refused(ctx, namespace); text != "" {
		return text, true
	}
	if len(lines) == 0 {
		return "its pods are not there yet", false
	}
	return strings.Join(lines, "; "), fatal
}

// refused is why a controller could not make pods, such as a quota; "" if it could.
func (c *Client) refused(ctx context.Context, namespace string) string {
	sets, err := c.list(ctx, replicaSetKind, namespace, "")
	if err != nil {
		return ""
	}
	for i := range sets {
		all, _, _ := unstructured.NestedSlice(sets[i].Object, "status", "conditions")
		for _, x := range all {
			m, _ := x.(map[string]any)
			if m["type"] == "ReplicaFailure" && m["status"] == "True" {
				return explain(fmt.Errorf("%s: %v", title(&sets[i]), m["message"])).Error()
			}
		}
	}
	return ""
}

// hopelessReasons are those of a waiting container that no waiting mends.
var hopelessReasons = map[string]string{
	"ErrImageNeverPull":          "the node does not have the image, and may not pull it: load it (weir cluster load), or name another one with --image",
	"InvalidImageName":           "the image has no valid name: correct --image",
	"CreateContainerConfigError": "something that the container is given is not there",
}

// podTrouble says why a pod is not ready.
func podTrouble(p *unstructured.Unstructured) (why string, fatal bool) {
	name := "pod/" + p.GetName()
	conditions, _, _ := unstructured.NestedSlice(p.Object, "status", "conditions")
	for _, x := range conditions {
		if m, _ := x.(map[string]any); m["type"] == "PodScheduled" && m["status"] == "False" {
			return fmt.Sprintf("%s cannot be scheduled: %v", name, m["message"]), false // a node may yet have room
		}
	}
	statuses, _, _ := unstructured.NestedSlice(p.Object, "status", "containerStatuses")
	for _, x := range statuses {
		s, _ := x.(map[string]any)
		reason, _, _ := unstructured.NestedString(s, "state", "waiting", "reason")
		message, _, _ := unstructured.NestedString(s, "state", "waiting", "message")
		if advice, ok := hopelessReasons[reason]; ok {
			return fmt.Sprintf("%s: %s: %s: %s", name, reason, message, advice), true
		}
		switch reason {
		case "ImagePullBackOff", "ErrImagePull":
			return fmt.Sprintf("%s: its image cannot be pulled: %s (load it into the nodes, or name one that they can reach with --image)", name, message), false
		case "CrashLoopBackOff":
			code, _, _ := unstructured.NestedInt64(s, "lastState", "terminated", "exitCode")
			return fmt.Sprintf("%s: its program ended with %d, again and again (kubectl logs -p %s)", name, code, p.GetName()), false
		case "":
		default:
			return fmt.Sprintf("%s: %s %s", name, reason, message), false
		}
	}
	phase, _, _ := unstructured.NestedString(p.Object, "status", "phase")
	return fmt.Sprintf("%s: %s, not ready", name, phase), false
}

// list gives the objects of a kind with the labels of a selector.
func (c *Client) list(ctx context.Context, gvk schema.GroupVersionKind, namespace, selector string) ([]unstructured.Unstructured, error) {
	on, err := c.on(ctx, gvk, namespace)
	if err != nil {
		return nil, err
	}
	l, err := on.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", gvk.Kind, namespace, explain(err))
	}
	slices.SortFunc(l.Items, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return l.Items, nil
}

func text(o map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(o, path...)
	return s
}
