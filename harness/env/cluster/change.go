package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Fault is a change of a deployment that a requirement must notice.
type Fault struct {
	Name        string
	Says        string
	Requirement string
	deployment  string
	change      func(container map[string]any)
}

// Faults are what shows that the rows about deployments can fail. A processor that loses what it has is none of them: a node gives even a pod that is
// deleted without a grace period two seconds, in which one that is told to end gives everything back. weir certify-async kills it for good.
var Faults = []Fault{
	{"gateway-cuts", "a gateway that ends does not wait for what it has", "K8S-04", "weir-gateway", cuts},
	{"server-cuts", "a model server that ends does not wait for what it has", "K8S-02", "weir-sim-vllm", cuts},
}

// cuts takes away everything that waits at the end.
func cuts(c map[string]any) {
	delete(c, "lifecycle")
	c["args"] = slices.DeleteFunc(slices.Clone(c["args"].([]any)), func(a any) bool { return strings.HasPrefix(a.(string), "--drain-timeout") })
}

// Put changes the deployment of a namespace, waits until it is ready, and gives what takes the change back.
func (f Fault) Put(ctx context.Context, c *Client, namespace string) (restore func(context.Context) error, err error) {
	before, err := c.change(ctx, namespace, f.deployment, f.change)
	if err != nil {
		return nil, err
	}
	restore = func(ctx context.Context) error {
		_, err := c.change(ctx, namespace, f.deployment, func(container map[string]any) {
			clear(container)
			for k, v := range before {
				container[k] = v
			}
		})
		if err != nil {
			return err
		}
		return c.AwaitReady(ctx, namespace, startLimit)
	}
	return restore, c.AwaitReady(ctx, namespace, startLimit)
}

// change changes the first container of a Deployment, and gives it as it was.
func (c *Client) change(ctx context.Context, namespace, name string, by func(container map[string]any)) (before map[string]any, err error) {
	on, err := c.on(ctx, deploymentKind, namespace)
	if err != nil {
		return nil, err
	}
	d, err := on.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("deployment/%s in %s: %w", name, namespace, explain(err))
	}
	containers, _, err := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) == 0 {
		return nil, fmt.Errorf("deployment/%s in %s has no containers: %w", name, namespace, err)
	}
	first := containers[0].(map[string]any)
	before = (&unstructured.Unstructured{Object: first}).DeepCopy().Object
	by(first)
	if err := unstructured.SetNestedSlice(d.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		return nil, err
	}
	if _, err := on.Update(ctx, d, metav1.UpdateOptions{FieldManager: manager}); err != nil {
		return nil, fmt.Errorf("deployment/%s in %s: %w", name, namespace, explain(err))
	}
	return before, nil
}
