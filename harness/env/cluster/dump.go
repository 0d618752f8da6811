package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// dumped are the kinds of which every object of a namespace is written down. Secrets are not among them.
var dumped = []schema.GroupVersionKind{
	podKind, deploymentKind, replicaSetKind, jobKind, configKind, policyKind, poolKind, objectiveKind, eventKind,
	{Version: "v1", Kind: "Service"}, {Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}, {Version: "v1", Kind: "ResourceQuota"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, {Group: "llm-d.ai", Version: "v1alpha2", Kind: "InferenceModelRewrite"},
	{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
}

// Dump writes what there is in some namespaces below dir: every object, the events in order, and the log of every container, also of the one before
// if it has restarted. What cannot be read is named in the error; the rest is written all the same.
func (c *Client) Dump(ctx context.Context, dir string, namespaces ...string) error {
	var errs []error
	write := func(name string, content []byte) {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			errs = append(errs, err)
			return
		}
		errs = append(errs, os.WriteFile(at, content, 0o600))
	}
	for _, ns := range namespaces {
		for _, gvk := range dumped {
			all, err := c.list(ctx, gvk, ns, "")
			var absent *absentError
			if errors.As(err, &absent) || err == nil && len(all) == 0 {
				continue
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if gvk == eventKind {
				write(ns+"/events.txt", []byte(eventLines(all)))
			}
			write(fmt.Sprintf("%s/%s.yaml", ns, strings.ToLower(gvk.Kind)), documents(all))
			if gvk == podKind {
				for i := range all {
					for name, log := range c.logs(ctx, &all[i]) {
						write(ns+"/logs/"+name, log)
					}
				}
			}
		}
	}
	return errors.Join(errs...)
}

// documents are objects as YAML, without the bookkeeping of who owns which field.
func documents(all []unstructured.Unstructured) []byte {
	var b strings.Builder
	for i := range all {
		unstructured.RemoveNestedField(all[i].Object, "metadata", "managedFields")
		text, err := yaml.Marshal(all[i].Object)
		if err != nil {
			text = []byte("# " + err.Error() + "\n")
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return []byte(b.String())
}

// eventLines are events in the order in which they were seen last.
func eventLines(all []unstructured.Unstructured) string {
	var lines []string
	for i := range all {
		o := all[i].Object
		at := text(o, "lastTimestamp")
		if at == "" {
			at = text(o, "eventTime")
		}
		if at == "" {
			at = all[i].GetCreationTimestamp().UTC().Format("2006-01-02T15:04:05Z")
		}
		lines = append(lines, fmt.Sprintf("%s %-7s %-20s %s/%s: %s\n", at, text(o, "type"), text(o, "reason"), strings.ToLower(text(o, "involvedObject", "kind")),
			text(o, "involvedObject", "name"), text(o, "message")))
	}
	slices.Sort(lines) // each begins with its instant
	return strings.Join(lines, "")
}

// logs are the logs of the containers of a pod, by name of a file.
func (c *Client) logs(ctx context.Context, p *unstructured.Unstructured) map[string][]byte {
	out := map[string][]byte{}
	statuses, _, _ := unstructured.NestedSlice(p.Object, "status", "containerStatuses")
	for _, x := range statuses {
		s, _ := x.(map[string]any)
		name := text(s, "name")
		restarts, _, _ := unstructured.NestedInt64(s, "restartCount")
		for _, previous := range []bool{false, true} {
			if previous && restarts == 0 {
				continue
			}
			q := url.Values{"container": {name}, "timestamps": {"true"}, "previous": {fmt.Sprint(previous)}, "limitBytes": {"16777216"}}
			log, err := c.get(ctx, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/log?%s", p.GetNamespace(), p.GetName(), q.Encode()))
			if err != nil {
				log = []byte(err.Error() + "\n")
			}
			file := p.GetName() + "." + name
			if previous {
				file += ".previous"
			}
			out[file+".log"] = log
		}
	}
	return out
}
