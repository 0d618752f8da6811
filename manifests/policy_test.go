package manifests_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rule is one rule that a deployment keeps.
type rule struct {
	name  string
	check func(objects) problems
}

// policy is every rule.
var policy = []rule{
	{"pods are restricted", eachWorkload(restrictedPod)},
	{"containers are restricted", eachContainer(restrictedContainer)},
	{"images are pinned", eachContainer(pinnedImage)},
	{"resources are bounded", eachContainer(boundedResources)},
	{"what runs on is probed", probes},
	{"accounts exist and know only what they need", accounts},
	{"roles are narrow and bound", roles},
	{"what a pod mounts or reads exists", references},
	{"variables in arguments are defined", eachContainer(variables)},
	{"selectors find their own pods", ownSelectors},
	{"services lead somewhere", services},
	{"every workload may be disrupted, one pod at a time", budgets},
	{"nothing goes in or out unasked", networks},
	{"there is time to drain", drains},
	{"everything is in one namespace", oneNamespace},
	{"no object is there twice", unique},
}

func eachWorkload(check func(*problems, workload)) func(objects) problems {
	return func(all objects) (p problems) {
		for _, w := range all.workloads() {
			check(&p, w)
		}
		return p
	}
}

func eachContainer(check func(*problems, workload, any)) func(objects) problems {
	return eachWorkload(func(p *problems, w workload) {
		p.check(len(w.containers()) > 0, "%s has no containers", title(w.object))
		for _, c := range w.containers() {
			check(p, w, c)
		}
	})
}

// restrictedPod is the pod's half of the restricted Pod Security Standard, and more.
func restrictedPod(p *problems, w workload) {
	spec := field(w.template, "spec")
	s := field(spec, "securityContext")
	p.check(yes(s, "runAsNonRoot"), "%s: runAsNonRoot is not true", title(w.object))
	p.check(number(s, "runAsUser") > 0, "%s: runAsUser is not a number above 0", title(w.object))
	p.check(text(s, "seccompProfile", "type") == "RuntimeDefault", "%s: seccompProfile is not RuntimeDefault", title(w.object))
	for _, f := range []string{"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} {
		p.check(!yes(spec, f), "%s: %s", title(w.object), f)
	}
	for _, v := range list(spec, "volumes") {
		for kind := range v.(object) {
			p.check(slices.Contains([]string{"name", "configMap", "emptyDir", "secret", "projected", "persistentVolumeClaim"}, kind),
				"%s: volume %s is a %s", title(w.object), text(v, "name"), kind)
		}
		// Without a limit a pod can fill its node.
		p.check(field(v, "emptyDir") == nil || text(v, "emptyDir", "sizeLimit") != "", "%s: volume %s has no sizeLimit", title(w.object), text(v, "name"))
	}
	p.check(field(spec, "enableServiceLinks") == false, "%s: enableServiceLinks is not false", title(w.object))
}

func restrictedContainer(p *problems, w workload, c any) {
	s, at := field(c, "securityContext"), title(w.object)+": "+text(c, "name")
	p.check(field(s, "allowPrivilegeEscalation") == false, "%s: allowPrivilegeEscalation is not false", at)
	p.check(!yes(s, "privileged"), "%s: privileged", at)
	p.check(yes(s, "readOnlyRootFilesystem"), "%s: readOnlyRootFilesystem is not true", at)
	p.check(slices.Equal(list(s, "capabilities", "drop"), []any{"ALL"}) && field(s, "capabilities", "add") == nil, "%s: capabilities are not all dropped", at)
	p.check(field(s, "runAsUser") == nil && field(s, "runAsNonRoot") == nil && field(s, "seccompProfile") == nil, "%s: says otherwise than its pod", at)
	for _, port := range list(c, "ports") {
		p.check(field(port, "hostPort") == nil, "%s: hostPort", at)
	}
}

// pinned is a name with a tag, or with a digest.
var pinned = regexp.MustCompile(`^[a-z0-9./:_-]+(:([A-Za-z0-9][A-Za-z0-9._-]*)|@sha256:[0-9a-f]{64})$`)

func pinnedImage(p *problems, w workload, c any) {
	image := text(c, "image")
	m := pinned.FindStringSubmatch(image)
	p.check(m != nil && m[2] != "latest", "%s: %s: image %q has no tag or digest, or is the latest one", title(w.object), text(c, "name"), image)
}

func boundedResources(p *problems, w workload, c any) {
	for _, of := range []string{"requests", "limits"} {
		for _, r := range []string{"cpu", "memory"} {
			p.check(quantity(text(c, "resources", of, r)) > 0, "%s: %s: %s of %s are missing", title(w.object), text(c, "name"), of, r)
		}
	}
	for r := range mapping(c, "resources", "requests") {
		request, limit := quantity(text(c, "resources", "requests", r)), quantity(text(c, "resources", "limits", r))
		extended := strings.Contains(r, "/") // cannot be overcommitted
		p.check(request <= limit && (!extended || request == limit), "%s: %s: request and limit of %s do not fit", title(w.object), text(c, "name"), r)
	}
}

func mapping(v any, path ...any) object { m, _ := field(v, path...).(object); return m }

// quantity reads the forms that are used here.
func quantity(s string) float64 {
	unit := 1.0
	for _, u := range []struct {
		suffix string
		is     float64
	}{{"Gi", 1 << 30}, {"Mi", 1 << 20}, {"m", 1e-3}} {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = rest, u.is
			break
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return -1
	}
	return v * unit
}

func probes(all objects) (p problems) {
	for _, w := range all.workloads() {
		if k := text(w.object, "kind"); k == "Job" || k == "CronJob" {
			continue
		}
		for _, c := range list(w.template, "spec", "containers") {
			for _, probe := range []string{"readinessProbe", "livenessProbe"} {
				at := title(w.object) + ": " + text(c, "name") + ": " + probe
				how := mapping(c, probe)
				p.check(how != nil, "%s is missing", at)
				for _, kind := range []string{"httpGet", "tcpSocket", "grpc"} {
					if port := field(how, kind, "port"); port != nil {
						p.check(w.portNamed(port), "%s: there is no port %v", at, port)
					}
				}
			}
		}
	}
	return p
}

// accounts: nobody shares one or uses the namespace's; a token is mounted where a role wants it, and nowhere else.
func accounts(all objects) (p problems) {
	users := map[string]string{}
	for _, w := range all.workloads() {
		account := text(w.template, "spec", "serviceAccountName")
		sa := all.named("ServiceAccount", account)
		p.check(sa != nil, "%s: there is no account %q", title(w.object), account)
		p.check(users[account] == "", "%s: uses the account of %s", title(w.object), users[account])
		users[account] = title(w.object)
		p.check(sa == nil || field(sa, "automountServiceAccountToken") == false, "ServiceAccount %s mounts its token everywhere", account)
		bound := slices.ContainsFunc(all.of("RoleBinding"), func(b object) bool {
			return slices.ContainsFunc(list(b, "subjects"), func(s any) bool { return text(s, "name") == account })
		})
		p.check(field(w.template, "spec", "automountServiceAccountToken") == bound, "%s: automountServiceAccountToken must be %v: a role is bound to its account, or is not", title(w.object), bound)
	}
	for _, sa := range all.of("ServiceAccount") {
		if passing[text(sa, "metadata", "labels", "app.kubernetes.io/component")] {
			continue
		}
		p.check(users[name(sa)] != "", "ServiceAccount %s is nobody's", name(sa))
	}
	return p
}

func roles(all objects) (p problems) {
	for _, o := range all.of("ClusterRole", "ClusterRoleBinding") {
		p.check(false, "%s: everything that is asked for is in the namespace", title(o))
	}
	for _, o := range all.of("Role") {
		for _, r := range list(o, "rules") {
			for _, f := range []string{"apiGroups", "resources", "verbs"} {
				p.check(len(list(r, f)) > 0 && !slices.Contains(list(r, f), any("*")), "%s: %s are missing, or all of them", title(o), f)
			}
			for _, secret := range []any{"secrets", "pods/exec", "roles", "rolebindings", "serviceaccounts/token"} {
				p.check(!slices.Contains(list(r, "resources"), secret), "%s: %s", title(o), secret)
			}
		}
		p.check(slices.ContainsFunc(all.of("RoleBinding"), func(b object) bool { return text(b, "roleRef", "name") == name(o) }), "%s is not bound", title(o))
	}
	for _, b := range all.of("RoleBinding") {
		p.check(text(b, "roleRef", "kind") == "Role" && all.named("Role", text(b, "roleRef", "name")) != nil, "%s: there is no such role", title(b))
		for _, s := range list(b, "subjects") {
			p.check(text(s, "kind") == "ServiceAccount" && all.named("ServiceAccount", text(s, "name")) != nil, "%s: there is no account %q", title(b), text(s, "name"))
			p.check(text(s, "namespace") == text(b, "metadata", "namespace"), "%s: the account is of namespace %q", title(b), text(s, "namespace"))
		}
	}
	return p
}

// references: volumes are declared and used, and what they and variables are taken from is there.
func references(all objects) (p problems) {
	key := func(w workload, config, key string) {
		cm := all.named("ConfigMap", config)
		p.check(cm != nil, "%s: there is no ConfigMap %q", title(w.object), config)
		p.check(cm == nil || key == "" || field(cm, "data", key) != nil, "%s: ConfigMap %s has no %q", title(w.object), config, key)
	}
	for _, w := range all.workloads() {
		mounts := map[string]string{}
		for _, c := range w.containers() {
			for _, m := range list(c, "volumeMounts") {
				mounts[text(m, "name")] = text(m, "mountPath")
			}
			for _, e := range list(c, "env") {
				if ref := field(e, "valueFrom", "configMapKeyRef"); ref != nil {
					key(w, text(ref, "name"), text(ref, "key"))
				}
				if ref := field(e, "valueFrom", "secretKeyRef"); ref != nil {
					p.check(yes(ref, "optional"), "%s: secret %s is no part of this and not optional", title(w.object), text(ref, "name"))
				}
			}
			for _, e := range list(c, "envFrom") {
				key(w, text(e, "configMapRef", "name"), "")
			}
		}
		for _, v := range list(w.template, "spec", "volumes") {
			at := mounts[text(v, "name")]
			p.check(at != "", "%s: volume %s is not mounted", title(w.object), text(v, "name"))
			delete(mounts, text(v, "name"))
			if field(v, "configMap") == nil {
				continue
			}
			key(w, text(v, "configMap", "name"), "")
			for _, c := range w.containers() {
				for _, a := range list(c, "args") {
					if _, file, ok := strings.Cut(a.(string), at+"/"); ok && at != "" {
						key(w, text(v, "configMap", "name"), file)
					}
				}
			}
		}
		for v := range mounts {
			p.check(false, "%s: there is no volume %q", title(w.object), v)
		}
	}
	return p
}

var variable = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

func variables(p *problems, w workload, c any) {
	for _, a := range append(list(c, "command"), list(c, "args")...) {
		for _, m := range variable.FindAllStringSubmatch(a.(string), -1) {
			p.check(slices.ContainsFunc(list(c, "env"), func(e any) bool { return text(e, "name") == m[1] }), "%s: %s: there is no variable %s", title(w.object), text(c, "name"), m[1])
		}
	}
}

func ownSelectors(all objects) (p problems) {
	for _, w := range all.workloads() {
		if selector := field(w.object, "spec", "selector"); selector != nil {
			p.check(matches(selector, w.labels()), "%s does not select its own pods", title(w.object))
			p.check(len(all.selected(selector)) <= 1, "%s selects pods of others", title(w.object))
		}
	}
	return p
}

func services(all objects) (p problems) {
	for _, s := range all.of("Service") {
		found := all.selected(object{"matchLabels": field(s, "spec", "selector")})
		p.check(field(s, "spec", "selector") != nil && len(found) > 0, "%s selects no pods", title(s))
		for _, w := range found {
			for _, port := range list(s, "spec", "ports") {
				p.check(w.portNamed(field(port, "targetPort")), "%s: %s has no port %v", title(s), title(w.object), field(port, "targetPort"))
			}
		}
	}
	for _, o := range all.of("InferencePool") {
		found := all.selected(field(o, "spec", "selector"))
		p.check(len(found) > 0, "%s selects no pods", title(o))
		for _, w := range found {
			for _, port := range list(o, "spec", "targetPorts") {
				p.check(w.portNamed(field(port, "number")), "%s: %s has no port %d", title(o), title(w.object), number(port, "number"))
			}
		}
		ref := field(o, "spec", "endpointPickerRef")
		s := all.named("Service", text(ref, "name"))
		p.check(slices.ContainsFunc(list(s, "spec", "ports"), func(port any) bool { return number(port, "port") == number(ref, "port", "number") }),
			"%s: there is no Service %s with port %d", title(o), text(ref, "name"), number(ref, "port", "number"))
	}
	for _, o := range all.of("InferenceObjective", "InferenceModelRewrite") {
		p.check(all.named("InferencePool", text(o, "spec", "poolRef", "name")) != nil, "%s: there is no pool %q", title(o), text(o, "spec", "poolRef", "name"))
	}
	for _, o := range all.of("PodMonitor", "ServiceMonitor") {
		port := text(o, "spec", "podMetricsEndpoints", 0, "port")
		found := all.selected(field(o, "spec", "selector"))
		p.check(len(found) > 0, "%s selects no pods", title(o))
		if text(o, "kind") == "ServiceMonitor" {
			port = text(o, "spec", "endpoints", 0, "port")
			p.check(slices.ContainsFunc(all.of("Service"), func(s object) bool {
				return matches(field(o, "spec", "selector"), mapping(s, "metadata", "labels")) &&
					slices.ContainsFunc(list(s, "spec", "ports"), func(x any) bool { return text(x, "name") == port })
			}), "%s selects no Service with a port %s", title(o), port)
		}
		for _, w := range found {
			p.check(w.portNamed(port), "%s: %s has no port %s", title(o), title(w.object), port)
		}
	}
	return p
}

func budgets(all objects) (p problems) {
	for _, w := range all.workloads() {
		if text(w.object, "kind") != "Deployment" && text(w.object, "kind") != "StatefulSet" {
			continue
		}
		n := 0
		for _, b := range all.of("PodDisruptionBudget") {
			if matches(field(b, "spec", "selector"), w.labels()) {
				n++
			}
		}
		p.check(n == 1, "%s has %d PodDisruptionBudgets, and the eviction of a pod works with exactly one", title(w.object), n)
	}
	for _, b := range all.of("PodDisruptionBudget") {
		p.check(len(all.selected(field(b, "spec", "selector"))) > 0, "%s selects no pods", title(b))
		// With one replica minAvailable would keep a node from ever being drained.
		p.check(number(b, "spec", "maxUnavailable") == 1, "%s: maxUnavailable is not 1", title(b))
	}
	return p
}

// networks: every pod is denied everything by one policy and allowed something by others; ports are those of the pods at that end.
func networks(all objects) (p problems) {
	denied := func(w workload, way string) bool {
		return slices.ContainsFunc(all.of("NetworkPolicy"), func(n object) bool {
			return matches(field(n, "spec", "podSelector"), w.labels()) && slices.Contains(list(n, "spec", "policyTypes"), any(way)) &&
				field(n, "spec", strings.ToLower(way)) == nil
		})
	}
	for _, w := range all.workloads() {
		for _, way := range []string{"Ingress", "Egress"} {
			p.check(denied(w, way), "%s: no policy denies %s", title(w.object), way)
		}
	}
	for _, n := range all.of("NetworkPolicy") {
		own := all.selected(field(n, "spec", "podSelector"))
		p.check(len(own) > 0, "%s selects no pods", title(n))
		for _, r := range list(n, "spec", "ingress") {
			for _, port := range list(r, "ports") {
				for _, w := range own {
					p.check(w.portNamed(field(port, "port")), "%s: %s has no port %v", title(n), title(w.object), field(port, "port"))
				}
			}
			p.check(len(list(r, "ports")) > 0, "%s: ingress to every port", title(n))
			peers(&p, all, n, list(r, "from"), nil)
		}
		for _, r := range list(n, "spec", "egress") {
			p.check(len(list(r, "ports")) > 0, "%s: egress to every port", title(n))
			peers(&p, all, n, list(r, "to"), list(r, "ports"))
		}
	}
	return p
}

// passing are the components whose pods come and go with a run.
var passing = map[string]bool{"load": true, "certify": true}

// peers checks that pods are there which a policy names, those that come and go excepted. Redis and model servers are named by the
// picker for what it may be told to do.
func peers(p *problems, all objects, n object, list []any, ports []any) {
	for _, peer := range list {
		if field(peer, "podSelector") == nil || passing[text(peer, "podSelector", "matchLabels", "app.kubernetes.io/component")] {
			continue
		}
		found := all.selected(field(peer, "podSelector"))
		p.check(len(found) > 0, "%s: a peer is no pod", title(n))
		for _, port := range ports {
			for _, w := range found {
				p.check(w.portNamed(field(port, "port")), "%s: %s has no port %v", title(n), title(w.object), field(port, "port"))
			}
		}
	}
}

var drainTimeout = regexp.MustCompile(`^--drain-timeout=(.*)$`)

// drains: a pod is killed when its time is over, whatever it is told to wait for.
func drains(all objects) (p problems) {
	for _, w := range all.workloads() {
		grace := time.Duration(number(w.template, "spec", "terminationGracePeriodSeconds")) * time.Second
		p.check(grace > 0, "%s has no terminationGracePeriodSeconds", title(w.object))
		for _, c := range w.containers() {
			need := time.Duration(number(c, "lifecycle", "preStop", "sleep", "seconds")) * time.Second
			for _, a := range list(c, "args") {
				if m := drainTimeout.FindStringSubmatch(a.(string)); m != nil {
					d, err := time.ParseDuration(m[1])
					p.check(err == nil, "%s: %v", title(w.object), err)
					need += d
				}
			}
			p.check(need < grace, "%s: %s may take %s to drain and is killed after %s", title(w.object), text(c, "name"), need, grace)
		}
	}
	return p
}

func oneNamespace(all objects) (p problems) {
	seen := ""
	for _, o := range all {
		ns := text(o, "metadata", "namespace")
		switch text(o, "kind") {
		case "CustomResourceDefinition":
			continue
		case "Namespace":
			ns = name(o)
			p.check(text(o, "metadata", "labels", "pod-security.kubernetes.io/enforce") == "restricted", "%s does not enforce the restricted standard", title(o))
		}
		if seen == "" {
			seen = ns
		}
		p.check(ns != "" && ns == seen, "%s is in namespace %q, others in %q", title(o), ns, seen)
	}
	return p
}

func unique(all objects) (p problems) {
	seen := map[string]bool{}
	for _, o := range all {
		id := text(o, "apiVersion") + " " + title(o)
		p.check(!seen[id], "%s is there twice", title(o))
		seen[id] = true
	}
	return p
}

// deployments are the overlays as they are deployed, alone or beside each other.
var deployments = [][]string{{"kind"}, {"cluster"}, {"gpu"}, {"certify"}, {"kind", "inspect"}, {"cluster", "monitoring"}}

func TestPolicy(t *testing.T) {
	for _, d := range deployments {
		all := build(t, d...)
		for _, r := range policy {
			if found := r.check(all); len(found) > 0 {
				t.Errorf("%v: %s:\n%s", d, r.name, found)
			}
		}
	}
}

// TestPolicyCanFail changes one thing and expects one rule to see it.
func TestPolicyCanFail(t *testing.T) {
	picker := []any{"spec", "template", "spec", "containers", 0}
	in := func(path ...any) []any { return append(slices.Clone(picker), path...) }
	pod := func(path ...any) []any { return append([]any{"spec", "template", "spec"}, path...) }
	whole := build(t, "kind")
	tried := map[string]bool{}
	for _, c := range []struct {
		rule   string
		change func(all objects, picker object) objects
		want   string
	}{
		{"pods are restricted", func(all objects, o object) objects {
			set(o, false, pod("securityContext", "runAsNonRoot")...)
			return all
		}, "runAsNonRoot"},
		{"pods are restricted", func(all objects, o object) objects { set(o, 0, pod("securityContext", "runAsUser")...); return all }, "runAsUser"},
		{"pods are restricted", func(all objects, o object) objects {
			remove(o, pod("securityContext", "seccompProfile")...)
			return all
		}, "seccompProfile"},
		{"pods are restricted", func(all objects, o object) objects { set(o, true, pod("hostNetwork")...); return all }, "hostNetwork"},
		{"pods are restricted", func(all objects, o object) objects {
			set(o, []any{object{"name": "config", "hostPath": object{"path": "/"}}}, pod("volumes")...)
			return all
		}, "is a hostPath"},
		{"pods are restricted", func(all objects, o object) objects {
			set(o, []any{object{"name": "config", "emptyDir": object{}}}, pod("volumes")...)
			return all
		}, "sizeLimit"},
		{"containers are restricted", func(all objects, o object) objects { remove(o, in("securityContext")...); return all }, "allowPrivilegeEscalation"},
		{"containers are restricted", func(all objects, o object) objects {
			set(o, true, in("securityContext", "allowPrivilegeEscalation")...)
			return all
		}, "allowPrivilegeEscalation"},
		{"containers are restricted", func(all objects, o object) objects {
			set(o, []any{"NET_RAW"}, in("securityContext", "capabilities", "drop")...)
			return all
		}, "capabilities"},
		{"containers are restricted", func(all objects, o object) objects {
			set(o, []any{"SYS_ADMIN"}, in("securityContext", "capabilities", "add")...)
			return all
		}, "capabilities"},
		{"containers are restricted", func(all objects, o object) objects {
			remove(o, in("securityContext", "readOnlyRootFilesystem")...)
			return all
		}, "readOnlyRootFilesystem"},
		{"containers are restricted", func(all objects, o object) objects { set(o, 0, in("securityContext", "runAsUser")...); return all }, "otherwise than its pod"},
		{"containers are restricted", func(all objects, o object) objects {
			set(o, []any{object{"name": "init"}}, pod("initContainers")...)
			return all
		}, "init: allowPrivilegeEscalation"},
		{"images are pinned", func(all objects, o object) objects { set(o, "weir:latest", in("image")...); return all }, "weir:latest"},
		{"images are pinned", func(all objects, o object) objects { set(o, "weir", in("image")...); return all }, `"weir"`},
		{"images are pinned", func(all objects, o object) objects { set(o, "localhost:5000/weir", in("image")...); return all }, "localhost:5000/weir"},
		{"resources are bounded", func(all objects, o object) objects { remove(o, in("resources", "limits")...); return all }, "limits of cpu"},
		{"resources are bounded", func(all objects, o object) objects { remove(o, in("resources", "requests", "memory")...); return all }, "requests of memory"},
		{"resources are bounded", func(all objects, o object) objects { set(o, "3", in("resources", "requests", "cpu")...); return all }, "do not fit"},
		{"resources are bounded", func(all objects, o object) objects {
			set(o, "1", in("resources", "requests", "nvidia.com/gpu")...)
			return all
		}, "do not fit"},
		{"what runs on is probed", func(all objects, o object) objects { remove(o, in("livenessProbe")...); return all }, "livenessProbe is missing"},
		{"what runs on is probed", func(all objects, o object) objects { set(o, 9004, in("readinessProbe", "grpc", "port")...); return all }, "no port 9004"},
		{"accounts exist and know only what they need", func(all objects, o object) objects { remove(o, pod("serviceAccountName")...); return all }, "no account"},
		{"accounts exist and know only what they need", func(all objects, o object) objects {
			set(o, "weir-gateway", pod("serviceAccountName")...)
			return all
		}, "uses the account of"},
		{"accounts exist and know only what they need", func(all objects, _ object) objects {
			set(all.named("Deployment", "weir-gateway"), true, pod("automountServiceAccountToken")...)
			return all
		}, "Deployment weir-gateway: automountServiceAccountToken must be false"},
		{"accounts exist and know only what they need", func(all objects, _ object) objects { return without(all, "RoleBinding", "weir-picker") }, "must be false"},
		{"roles are narrow and bound", func(all objects, _ object) objects {
			set(all.named("Role", "weir-picker"), []any{"*"}, "rules", 0, "verbs")
			return all
		}, "verbs"},
		{"roles are narrow and bound", func(all objects, _ object) objects {
			set(all.named("Role", "weir-picker"), []any{"secrets"}, "rules", 0, "resources")
			return all
		}, "secrets"},
		{"roles are narrow and bound", func(all objects, _ object) objects { return without(all, "Role", "weir-picker") }, "no such role"},
		{"roles are narrow and bound", func(all objects, _ object) objects {
			set(all.named("RoleBinding", "weir-picker"), "default", "subjects", 0, "namespace")
			return all
		}, `namespace "default"`},
		{"roles are narrow and bound", func(all objects, _ object) objects {
			return append(all, object{"kind": "ClusterRole", "metadata": object{"name": "x"}})
		}, "ClusterRole x"},
		{"what a pod mounts or reads exists", func(all objects, _ object) objects { return without(all, "ConfigMap", "") }, "no ConfigMap"},
		{"what a pod mounts or reads exists", func(all objects, o object) objects { set(o, []any{}, pod("volumes")...); return all }, `no volume "config"`},
		{"what a pod mounts or reads exists", func(all objects, o object) objects {
			set(o, "--config-file=/etc/weir/other.yaml", in("args", 3)...)
			return all
		}, `has no "other.yaml"`},
		{"what a pod mounts or reads exists", func(all objects, o object) objects {
			set(o, []any{object{"name": "X", "valueFrom": object{"secretKeyRef": object{"name": "s", "key": "k"}}}}, in("env")...)
			return all
		}, "not optional"},
		{"variables in arguments are defined", func(all objects, o object) objects {
			set(o, "--pool-namespace=$(NAMESPAC)", in("args", 1)...)
			return all
		}, "no variable NAMESPAC"},
		{"selectors find their own pods", func(all objects, o object) objects {
			set(o, object{"app": "x"}, "spec", "selector", "matchLabels")
			return all
		}, "its own pods"},
		{"selectors find their own pods", func(all objects, o object) objects {
			set(o, object{"app.kubernetes.io/part-of": "weir"}, "spec", "selector", "matchLabels")
			return all
		}, "pods of others"},
		{"services lead somewhere", func(all objects, _ object) objects {
			set(all.named("Service", "weir-picker"), object{"app": "x"}, "spec", "selector")
			return all
		}, "Service weir-picker selects no pods"},
		{"services lead somewhere", func(all objects, _ object) objects {
			set(all.named("Service", "weir-picker"), "http", "spec", "ports", 0, "targetPort")
			return all
		}, "has no port http"},
		{"services lead somewhere", func(all objects, _ object) objects {
			set(all.named("InferencePool", "weir"), 8001, "spec", "targetPorts", 0, "number")
			return all
		}, "has no port 8001"},
		{"services lead somewhere", func(all objects, _ object) objects { return without(all, "Service", "weir-picker") }, "no Service weir-picker"},
		{"services lead somewhere", func(all objects, _ object) objects { return without(all, "InferencePool", "weir") }, `no pool "weir"`},
		{"services lead somewhere", func(all objects, _ object) objects {
			return append(all, object{"kind": "PodMonitor", "metadata": object{"name": "m"}, "spec": object{"selector": object{"matchLabels": object{"a": "b"}}}})
		}, "PodMonitor m selects no pods"},
		{"every workload may be disrupted, one pod at a time", func(all objects, _ object) objects {
			return without(all, "PodDisruptionBudget", "weir-picker")
		}, "0 PodDisruptionBudgets"},
		{"every workload may be disrupted, one pod at a time", func(all objects, _ object) objects {
			set(all.named("PodDisruptionBudget", "weir-picker"), 0, "spec", "maxUnavailable")
			return all
		}, "maxUnavailable"},
		{"nothing goes in or out unasked", func(all objects, _ object) objects {
			return without(all, "NetworkPolicy", "weir-default-deny")
		}, "no policy denies Egress"},
		{"nothing goes in or out unasked", func(all objects, _ object) objects {
			set(all.named("NetworkPolicy", "weir-redis"), []any{object{}}, "spec", "ingress")
			return all
		}, "ingress to every port"},
		{"nothing goes in or out unasked", func(all objects, _ object) objects {
			set(all.named("NetworkPolicy", "weir-picker"), "htp", "spec", "egress", 0, "ports", 0, "port")
			return all
		}, "has no port htp"},
		{"nothing goes in or out unasked", func(all objects, _ object) objects { return without(all, "Deployment", "weir-redis") }, "a peer is no pod"},
		{"there is time to drain", func(all objects, o object) objects { set(o, 30, pod("terminationGracePeriodSeconds")...); return all }, "killed after 30s"},
		{"everything is in one namespace", func(all objects, o object) objects { set(o, "default", "metadata", "namespace"); return all }, `"default"`},
		{"everything is in one namespace", func(all objects, _ object) objects {
			remove(all.named("Namespace", "weir"), "metadata", "labels", "pod-security.kubernetes.io/enforce")
			return all
		}, "restricted"},
		{"no object is there twice", func(all objects, o object) objects { return append(all, o) }, "Deployment weir-picker is there twice"},
	} {
		all := whole.clone()
		all = c.change(all, all.named("Deployment", "weir-picker"))
		tried[c.rule] = true
		var got problems
		for _, r := range policy {
			if r.name == c.rule {
				got = r.check(all)
			}
		}
		if !strings.Contains(got.String(), c.want) {
			t.Errorf("%s: want a complaint with %q, got:\n%s", c.rule, c.want, got)
		}
	}
	for _, r := range policy {
		if !tried[r.name] {
			t.Errorf("rule %q has no trial", r.name)
		}
	}
	for i, r := range policy { // the changes above were made to copies
		if found := r.check(whole); len(found) > 0 {
			t.Errorf("%s, rule %d: the trials have changed what they began with:\n%s", r.name, i, found)
		}
	}
}

// without leaves an object out; an empty name all of its kind.
func without(all objects, kind, is string) objects {
	return slices.DeleteFunc(all, func(o object) bool { return text(o, "kind") == kind && (is == "" || name(o) == is) })
}
