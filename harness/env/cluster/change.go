package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Fault is a change of a deployment that requirements must notice.
type Fault struct {
	Name         string
	Says         string
	Requirements []string
	put          func(ctx context.Context, x *changes) error
}

// Faults are what shows that the rows about deployments can fail. K8S-10 has none, since it needs a network that enforces policies, and K8S-13 has none:
// a node gives even a pod that is deleted without a grace period two seconds, in which a processor that is told to end gives everything back.
// weir certify-async kills it for good.
var Faults = []Fault{
	{"picker-impatient", "requests wait a tenth of a second for a model server, and no longer", []string{"K8S-01", "K8S-05"},
		configured("picker", "epp.yaml", "defaultRequestTTL: 60s", "defaultRequestTTL: 100ms")},
	{"server-cuts", "a model server that ends does not wait for what it has", []string{"K8S-02"}, contained("model-server", cuts)},
	{"picker-cuts", "a picker that ends does not wait for what it has", []string{"K8S-03"}, contained("picker", cuts)},
	{"gateway-cuts", "a gateway that ends does not wait for what it has", []string{"K8S-04"}, contained("gateway", cuts)},
	{"gateway-pins-picker", "the gateway keeps the address of the picker that it found first", []string{"K8S-06"},
		pinned("gateway", "picker", "--ext-proc=weir-picker:", "--ext-proc=%s:")},
	{"service-pins-gateway", "the Service leads to one pod of the gateway, and not to its successor", []string{"K8S-07"}, handSelected("gateway", "weir-gateway")},
	{"prometheus-pins-picker", "Prometheus scrapes one picker by its address", []string{"K8S-08"},
		pinned("prometheus", "picker", "--name=picker=weir-picker-metrics:", "--name=picker=%s:")},
	{"band-full", "the band of a changed objective takes nothing", []string{"K8S-09"},
		configured("picker", "epp.yaml", "  priorityBands:\n", "  priorityBands:\n  - {priority: -5, maxBytes: 1}\n")},
	{"prometheus-pins-server", "Prometheus scrapes one model server by its address", []string{"K8S-11"},
		pinned("prometheus", "model-server", "--name=vllm=weir-model-servers:", "--name=vllm=%s:")},
	{"processor-without-gate", "the queue has no gate", []string{"K8S-12"},
		configured("processor", "queues.json", `"gate_type": "prometheus-saturation", "gate_params": {"pool": "weir"}`, `"gate_type": "constant"`)},
	{"processor-pins-broker", "the processor keeps the address of the broker that it found first", []string{"K8S-14"}, pinnedConfig("processor", "redis", "queues.json", "weir-redis:", "%s:")},
	{"processor-pins-prometheus", "the processor keeps the address of the Prometheus that it found first", []string{"K8S-14"},
		pinned("processor", "prometheus", "--prometheus-url=http://weir-prometheus:", "--prometheus-url=http://%s:")},
}

// Put changes the deployment of a namespace, waits until it is ready, and gives what takes the change back. restore is never nil.
func (f Fault) Put(ctx context.Context, c *Client, namespace string) (restore func(context.Context) error, err error) {
	x := &changes{c: c, ns: namespace}
	if err := f.put(ctx, x); err != nil {
		return x.undo, err
	}
	return x.undo, x.await(ctx)
}

// await returns when everything is ready and nothing of before is left, which goes on serving whoever is connected to it.
func (x *changes) await(ctx context.Context) error {
	if err := x.c.AwaitReady(ctx, x.ns, startLimit); err != nil {
		return err
	}
	return x.c.until(ctx, startLimit, func(ctx context.Context) (bool, string) {
		pods, err := x.c.list(ctx, podKind, x.ns, "app.kubernetes.io/part-of=weir")
		if err != nil {
			return false, err.Error()
		}
		for i := range pods {
			if pods[i].GetDeletionTimestamp() != nil {
				return false, fmt.Sprintf("pod/%s is on its way out", pods[i].GetName())
			}
		}
		return true, ""
	})
}

// changes are what was done to a namespace, and how each of it is taken back.
type changes struct {
	c    *Client
	ns   string
	back []func(context.Context) error
}

// undo takes everything back, the last one first.
func (x *changes) undo(ctx context.Context) error {
	var errs []error
	for _, back := range slices.Backward(x.back) {
		errs = append(errs, back(ctx))
	}
	x.back = nil
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return x.await(ctx)
}

// spec changes the spec of an object.
func (x *changes) spec(ctx context.Context, kind schema.GroupVersionKind, name string, by func(spec map[string]any) error) error {
	before, err := x.replace(ctx, kind, name, by)
	if err != nil {
		return err
	}
	x.back = append(x.back, func(ctx context.Context) error {
		_, err := x.replace(ctx, kind, name, func(spec map[string]any) error {
			clear(spec)
			for k, v := range before {
				spec[k] = v
			}
			return nil
		})
		return err
	})
	return nil
}

// replace changes the spec of an object, and gives it as it was.
func (x *changes) replace(ctx context.Context, kind schema.GroupVersionKind, name string, by func(spec map[string]any) error) (before map[string]any, err error) {
	on, err := x.c.on(ctx, kind, x.ns)
	if err != nil {
		return nil, err
	}
	o, err := on.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s %s in %s: %w", kind.Kind, name, x.ns, explain(err))
	}
	spec, ok := o.Object["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s %s in %s has no spec", kind.Kind, name, x.ns)
	}
	before = (&unstructured.Unstructured{Object: spec}).DeepCopy().Object
	if err := by(spec); err != nil {
		return nil, fmt.Errorf("%s %s in %s: %w", kind.Kind, name, x.ns, err)
	}
	if _, err := on.Update(ctx, o, metav1.UpdateOptions{FieldManager: manager}); err != nil {
		return nil, fmt.Errorf("%s %s in %s: %w", kind.Kind, name, x.ns, explain(err))
	}
	return before, nil
}

// container changes the first container of a part.
func (x *changes) container(ctx context.Context, part string, by func(container map[string]any) error) error {
	return x.spec(ctx, deploymentKind, parts[part], func(spec map[string]any) error {
		containers, _, err := unstructured.NestedSlice(spec, "template", "spec", "containers")
		if err != nil || len(containers) == 0 {
			return errors.Join(errors.New("it has no containers"), err)
		}
		if err := by(containers[0].(map[string]any)); err != nil {
			return err
		}
		return unstructured.SetNestedSlice(spec, containers, "template", "spec", "containers")
	})
}

// address is that of a pod of a part.
func (x *changes) address(ctx context.Context, part string) (pod unstructured.Unstructured, ip string, err error) {
	pods, err := x.c.list(ctx, podKind, x.ns, selects(part))
	if err != nil {
		return pod, "", err
	}
	for _, p := range pods {
		if ip = text(p.Object, "status", "podIP"); ip != "" && p.GetDeletionTimestamp() == nil {
			return p, ip, nil
		}
	}
	return pod, "", fmt.Errorf("no pod of %s has an address", part)
}

// contained changes the container of a part.
func contained(part string, by func(map[string]any) error) func(context.Context, *changes) error {
	return func(ctx context.Context, x *changes) error { return x.container(ctx, part, by) }
}

// cuts takes away everything that waits at the end.
func cuts(c map[string]any) error {
	delete(c, "lifecycle")
	args, err := arguments(c)
	c["args"] = append(slices.DeleteFunc(args, func(a any) bool { return strings.HasPrefix(a.(string), "--drain-timeout") }), "--drain-timeout=1ms")
	return err
}

func arguments(c map[string]any) ([]any, error) {
	args, ok := c["args"].([]any)
	if !ok {
		return nil, errors.New("its first container has no arguments")
	}
	return slices.Clone(args), nil
}

// pinned puts the address of a pod of another part into an argument, in the place of its Service. before is what the argument begins with.
func pinned(part, other, before, after string) func(context.Context, *changes) error {
	return func(ctx context.Context, x *changes) error {
		_, ip, err := x.address(ctx, other)
		if err != nil {
			return err
		}
		return x.container(ctx, part, func(c map[string]any) error {
			args, err := arguments(c)
			for i, a := range args {
				if rest, ok := strings.CutPrefix(a.(string), before); ok {
					args[i] = fmt.Sprintf(after, ip) + rest
					c["args"] = args
					return nil
				}
			}
			return errors.Join(fmt.Errorf("it has no argument that begins with %s", before), err)
		})
	}
}

// configured changes a text in a file of the configuration of a part.
func configured(part, file, before, after string) func(context.Context, *changes) error {
	return func(ctx context.Context, x *changes) error { return x.config(ctx, part, file, before, after) }
}

// pinnedConfig puts the address of a pod of another part into the configuration of a part.
func pinnedConfig(part, other, file, before, after string) func(context.Context, *changes) error {
	return func(ctx context.Context, x *changes) error {
		_, ip, err := x.address(ctx, other)
		if err != nil {
			return err
		}
		return x.config(ctx, part, file, before, fmt.Sprintf(after, ip))
	}
}

// config gives a part a ConfigMap of its own, since those of a deployment do not change.
func (x *changes) config(ctx context.Context, part, file, before, after string) error {
	on, err := x.c.on(ctx, configKind, x.ns)
	if err != nil {
		return err
	}
	deployments, err := x.c.on(ctx, deploymentKind, x.ns)
	if err != nil {
		return err
	}
	d, err := deployments.Get(ctx, parts[part], metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("deployment/%s in %s: %w", parts[part], x.ns, explain(err))
	}
	volumes, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "volumes")
	at := slices.IndexFunc(volumes, func(v any) bool { return text(v.(map[string]any), "configMap", "name") != "" })
	if at < 0 {
		return fmt.Errorf("deployment/%s in %s mounts no ConfigMap", parts[part], x.ns)
	}
	source := text(volumes[at].(map[string]any), "configMap", "name")
	m, err := on.Get(ctx, source, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("configmap/%s in %s: %w", source, x.ns, explain(err))
	}
	data := text(m.Object, "data", file)
	if !strings.Contains(data, before) {
		return fmt.Errorf("configmap/%s in %s: %s does not contain %q", source, x.ns, file, before)
	}
	other := &unstructured.Unstructured{Object: Object{"apiVersion": "v1", "kind": configKind.Kind,
		"metadata": map[string]any{"name": parts[part] + "-fault", "namespace": x.ns, "labels": map[string]any{"app.kubernetes.io/part-of": "weir"}},
		"data":     map[string]any{file: strings.ReplaceAll(data, before, after)}}}
	if err := x.c.apply(ctx, other, false); err != nil {
		return err
	}
	x.back = append(x.back, func(ctx context.Context) error {
		return ignoreAbsent(on.Delete(ctx, other.GetName(), metav1.DeleteOptions{}))
	})
	return x.spec(ctx, deploymentKind, parts[part], func(spec map[string]any) error {
		if err := unstructured.SetNestedField(volumes[at].(map[string]any), other.GetName(), "configMap", "name"); err != nil {
			return err
		}
		return unstructured.SetNestedSlice(spec, volumes, "template", "spec", "volumes")
	})
}

// handSelected has a Service select the pod that a part has now.
func handSelected(part, service string) func(context.Context, *changes) error {
	const label = "weir.dev/selected"
	return func(ctx context.Context, x *changes) error {
		pod, _, err := x.address(ctx, part)
		if err != nil {
			return err
		}
		if _, err := x.c.label(ctx, x.ns, pod.GetName(), map[string]any{label: "yes"}); err != nil {
			return err
		}
		x.back = append(x.back, func(ctx context.Context) error {
			_, err := x.c.label(ctx, x.ns, pod.GetName(), map[string]any{label: nil})
			return ignoreAbsent(err)
		})
		return x.spec(ctx, serviceKind, service, func(spec map[string]any) error {
			return unstructured.SetNestedField(spec, "yes", "selector", label)
		})
	}
}
