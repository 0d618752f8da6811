package cluster

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MakeNamespace makes a namespace for a run, which deletes it in the end. One that is there is taken over only if an earlier run has made it.
func (c *Client) MakeNamespace(ctx context.Context, name string) (Object, error) {
	o := Object{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": map[string]any{laneLabel: "true",
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted", "app.kubernetes.io/part-of": "weir"}}}
	on, err := c.on(ctx, namespaceKind, "")
	if err != nil {
		return nil, err
	}
	_, err = on.Create(ctx, &unstructured.Unstructured{Object: o}, metav1.CreateOptions{FieldManager: manager})
	if !apierrors.IsAlreadyExists(err) {
		return o, explain(err)
	}
	was, err := on.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, explain(err))
	}
	if was.GetLabels()[laneLabel] != "true" {
		return nil, fmt.Errorf("namespace %s is there already, and is not one that a run has made: choose another --namespace, or fewer --lanes", name)
	}
	return o, nil
}

// NeedUnused says what somebody else has in a namespace that a run would change or delete.
func (c *Client) NeedUnused(ctx context.Context, namespace string) error {
	var found []string
	for _, gvk := range []schema.GroupVersionKind{deploymentKind, poolKind, objectiveKind} {
		all, err := c.list(ctx, gvk, namespace, "!"+laneLabel)
		if err != nil {
			return err
		}
		for i := range all {
			found = append(found, strings.ToLower(all[i].GetKind())+"/"+all[i].GetName())
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("namespace %s is in use (%s), and a certification would change it: give it a namespace of its own", namespace, strings.Join(found, ", "))
	}
	return nil
}
