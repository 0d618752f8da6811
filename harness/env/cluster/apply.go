package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/cluster/render"
)

// manager owns the fields that are applied here.
const manager = "weir"

// pause is between two looks at something that nobody announces.
const pause = 200 * time.Millisecond

// Object is a Kubernetes object as JSON has it.
type Object = render.Object

// Apply makes objects what they are given as, in order, and waits for definitions before it applies what they define. Every object that could not
// be applied is named.
func (c *Client) Apply(ctx context.Context, objects []Object) error {
	var errs []error
	for _, o := range objects {
		if err := c.apply(ctx, &unstructured.Unstructured{Object: o}, false); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// DryRun asks the server whether it would take objects. What stands in a namespace that is among them, or is defined by a definition among them,
// can be asked for only once that is there: it is.
func (c *Client) DryRun(ctx context.Context, objects []Object) error {
	var errs []error
	for _, o := range objects {
		if err := c.apply(ctx, &unstructured.Unstructured{Object: o}, true); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *Client) apply(ctx context.Context, o *unstructured.Unstructured, dry bool) error {
	on, err := c.on(ctx, o.GroupVersionKind(), o.GetNamespace())
	if err != nil {
		return fmt.Errorf("%s: %w", title(o), err)
	}
	options := metav1.ApplyOptions{FieldManager: manager, Force: true}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if _, err := on.Apply(ctx, o.GetName(), o, options); err != nil {
		return fmt.Errorf("%s: %w", title(o), explain(err))
	}
	if dry || o.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	return c.until(ctx, 30*time.Second, func(ctx context.Context) (bool, string) {
		now, err := on.Get(ctx, o.GetName(), metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return condition(now, "Established") == "True", title(o) + " is not established"
	})
}

// until looks until look says yes; what it says otherwise becomes the error.
func (c *Client) until(ctx context.Context, limit time.Duration, look func(context.Context) (bool, string)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	last := ""
	for {
		ok, why := look(ctx)
		if ok {
			return nil
		}
		if ctx.Err() == nil || last == "" {
			last = why
		}
		if !clock.Sleep(ctx, pause) {
			return fmt.Errorf("%s: %w", last, context.Cause(ctx))
		}
	}
}

// condition is the status of a condition; "" if there is none of that type.
func condition(o *unstructured.Unstructured, kind string) string {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, x := range all {
		if m, ok := x.(map[string]any); ok && m["type"] == kind {
			s, _ := m["status"].(string)
			return s
		}
	}
	return ""
}

// NeedNamespace says what is wrong if a namespace is not there.
func (c *Client) NeedNamespace(ctx context.Context, name string) error {
	on, err := c.on(ctx, namespaceKind, "")
	if err != nil {
		return err
	}
	if _, err := on.Get(ctx, name, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("namespace %s: %w", name, explain(err))
	}
	return nil
}

// Remove deletes objects, the last one first, and returns when they are gone. Namespaces and definitions stay unless all says so: others may
// use them.
func (c *Client) Remove(ctx context.Context, objects []Object, all bool) error {
	var errs []error
	background := metav1.DeletePropagationBackground
	var gone []func(context.Context) (bool, string)
	for _, o := range slices.Backward(objects) {
		u := &unstructured.Unstructured{Object: o}
		if !all && slices.Contains([]string{"Namespace", "CustomResourceDefinition"}, u.GetKind()) {
			continue
		}
		on, err := c.on(ctx, u.GroupVersionKind(), u.GetNamespace())
		var absent *absentError
		if errors.As(err, &absent) {
			continue
		}
		if err == nil {
			err = on.Delete(ctx, u.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("%s: %w", title(u), explain(err)))
			continue
		}
		gone = append(gone, vanished(on, u))
	}
	for _, look := range gone {
		if err := c.until(ctx, 2*time.Minute, look); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func vanished(on dynamic.ResourceInterface, u *unstructured.Unstructured) func(context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		_, err := on.Get(ctx, u.GetName(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err.Error()
		}
		return apierrors.IsNotFound(err), title(u) + " is still there"
	}
}
