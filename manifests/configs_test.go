package manifests_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // named by envoy.yaml
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // named by envoy.yaml
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/llm-weir/weir/harness/cli"
	"github.com/llm-weir/weir/manifests"
	"github.com/llm-weir/weir/reference/epconfig"
)

// address is the name of one of our Services with a port.
var address = regexp.MustCompile(`weir-[a-z-]+:[0-9]+`)

// run gives the status and the output of a command of weir.
func run(args ...string) (int, string) {
	var out bytes.Buffer
	status := cli.Run(args, &out, &out)
	return status, out.String()
}

// commands are the arguments of the containers that run weir, by deployment, with configurations in real files.
func commands(t *testing.T, all objects) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, w := range all.workloads() {
		c := field(w.template, "spec", "containers", 0)
		if !strings.Contains(text(c, "image"), "weir") {
			continue
		}
		dir := t.TempDir()
		for _, v := range list(w.template, "spec", "volumes") {
			for file, content := range mapping(all.named("ConfigMap", text(v, "configMap", "name")), "data") {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content.(string)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, a := range list(c, "args") {
			out[name(w.object)] = append(out[name(w.object)], strings.ReplaceAll(a.(string), "/etc/weir", dir))
		}
	}
	return out
}

// TestCommands: every command takes its flags, and the two with a configuration take that.
func TestCommands(t *testing.T) {
	for _, overlay := range []string{"kind", "cluster", "gpu"} {
		for who, args := range commands(t, build(t, overlay)) {
			// The parser complains about flags before it looks at --help.
			if status, out := run(append(slices.Clone(args), "--help")...); status != cli.ExitPass || !strings.Contains(out, "Usage: weir "+args[0]) {
				t.Errorf("%s: %s: %v: status %d\n%s", overlay, who, args, status, out)
			}
			last := map[string]string{"picker": "--print-config", "processor": "--check-config"}[args[0]]
			if last == "" {
				continue
			}
			if status, out := run(append(slices.Clone(args), last)...); status != cli.ExitPass || strings.Contains(out, "warning") {
				t.Errorf("%s: %s: status %d\n%s", overlay, who, status, out)
			}
		}
	}
	if status, _ := run("gateway", "--adr=:8080", "--help"); status == cli.ExitPass {
		t.Error("an unknown flag was taken: the test above shows nothing")
	}
	if n := len(commands(t, build(t, "kind"))); n != 6 {
		t.Errorf("%d commands in kind", n)
	}
}

// TestPickers: both pickers' documents are strict ones of stable plugins, with flow control and bands for all objectives.
func TestPickers(t *testing.T) {
	contract, err := epconfig.ContractNamed("")
	if err != nil {
		t.Fatal(err)
	}
	for _, overlay := range []string{"kind", "gpu"} {
		all := build(t, overlay)
		var doc string
		for _, cm := range all.of("ConfigMap") {
			if d := text(cm, "data", "epp.yaml"); d != "" {
				doc = d
			}
		}
		cfg, err := epconfig.Load("epp.yaml", []byte(doc), contract)
		if err != nil || !cfg.FlowControl || len(cfg.Warnings) > 0 || cfg.Stable() != nil {
			t.Errorf("%s: %v, warnings %v, %v", overlay, err, cfg.Warnings, cfg.Stable())
			continue
		}
		for _, o := range all.of("InferenceObjective") {
			found := false
			for _, b := range cfg.Picker.Flow.Bands {
				found = found || b.Priority == number(o, "spec", "priority")
			}
			if !found {
				t.Errorf("%s: no band for %s", overlay, title(o))
			}
		}
	}
}

// TestEnvoy: its configuration is one in Envoy's own types, and does what the picker protocol wants.
func TestEnvoy(t *testing.T) {
	content, err := manifests.Files.ReadFile("gpu/gateway/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	read := func(content []byte) (*bootstrapv3.Bootstrap, error) {
		var o object
		if err := yaml.Unmarshal(content, &o); err != nil {
			t.Fatal(err)
		}
		asJSON, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var b bootstrapv3.Bootstrap
		if err := protojson.Unmarshal(asJSON, &b); err != nil { // unknown fields are errors, inside typed_config too
			return nil, err
		}
		return &b, b.ValidateAll()
	}
	b, err := read(content)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(bytes.Replace(content, []byte("failure_mode_allow"), []byte("failure_mode_alow"), 1)); err == nil {
		t.Error("a mistyped field was taken")
	}
	clusters := map[string]bool{}
	for _, c := range b.GetStaticResources().GetClusters() {
		clusters[c.GetName()] = true
		if h := c.GetOriginalDstLbConfig(); h != nil && (!h.GetUseHttpHeader() || h.GetHttpHeaderName() != "x-gateway-destination-endpoint") {
			t.Errorf("destinations come from %v", h)
		}
	}
	var hcm hcmv3.HttpConnectionManager
	if err := b.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(&hcm); err != nil {
		t.Fatal(err)
	}
	if err := hcm.ValidateAll(); err != nil {
		t.Error(err)
	}
	for _, route := range hcm.GetRouteConfig().GetVirtualHosts()[0].GetRoutes() {
		if !clusters[route.GetRoute().GetCluster()] {
			t.Errorf("no cluster %q", route.GetRoute().GetCluster())
		}
	}
	var ep extprocv3.ExternalProcessor
	if err := hcm.GetHttpFilters()[0].GetTypedConfig().UnmarshalTo(&ep); err != nil {
		t.Fatal(err)
	}
	mode := ep.GetProcessingMode()
	if err := ep.ValidateAll(); err != nil || !clusters[ep.GetGrpcService().GetEnvoyGrpc().GetClusterName()] || ep.GetFailureModeAllow() ||
		mode.GetRequestBodyMode() != extprocv3.ProcessingMode_FULL_DUPLEX_STREAMED || mode.GetResponseBodyMode() != extprocv3.ProcessingMode_FULL_DUPLEX_STREAMED ||
		mode.GetRequestTrailerMode() != extprocv3.ProcessingMode_SEND || mode.GetResponseTrailerMode() != extprocv3.ProcessingMode_SEND {
		t.Errorf("ext_proc: %v, %v", err, &ep)
	}
	// The queue waits a minute in the picker's document and longer elsewhere.
	if d := ep.GetMessageTimeout().AsDuration().Seconds(); d < 600 {
		t.Errorf("ext_proc gives up after %v s", d)
	}
}

// TestAddresses: the names and ports in configurations and arguments are those of Services.
func TestAddresses(t *testing.T) {
	for _, overlay := range []string{"kind", "cluster", "gpu"} {
		all := build(t, overlay)
		ports := map[string]bool{}
		for _, s := range all.of("Service") {
			for _, p := range list(s, "spec", "ports") {
				ports[name(s)+":"+strings.TrimSpace(jsonText(t, field(p, "port")))] = true
			}
		}
		said := ""
		for _, w := range all.workloads() {
			for _, c := range w.containers() {
				said += jsonText(t, field(c, "args"))
			}
		}
		for _, cm := range all.of("ConfigMap") {
			for _, content := range mapping(cm, "data") {
				said += " " + strings.ReplaceAll(content.(string), "address: weir-picker, port_value: ", "weir-picker:")
			}
		}
		n := 0
		for _, m := range address.FindAllString(said, -1) {
			if n++; !ports[m] {
				t.Errorf("%s: there is no Service at %s", overlay, m)
			}
		}
		if n < 4 {
			t.Errorf("%s: %d addresses found", overlay, n)
		}
	}
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDiscovery: the real Prometheus scrapes the annotated port of running pods of ours, once each, and says who they are.
func TestDiscovery(t *testing.T) {
	content, err := manifests.Files.ReadFile("public/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	var o object
	if err := yaml.Unmarshal(content, &o); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(field(o, "scrape_configs", 0, "relabel_configs"))
	if err != nil {
		t.Fatal(err)
	}
	var steps []*relabel.Config
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&steps); err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if err := s.Validate(model.LegacyValidation); err != nil {
			t.Fatal(err)
		}
	}
	const pod = "__meta_kubernetes_pod_"
	for _, c := range []struct {
		says                            string
		part, component, scrape, phase  string
		port, annotated, job, inference string // job "": not scraped
	}{
		{"a model server", "weir", "model-server", "true", "Running", "8000", "8000", "vllm", "weir"},
		{"a picker", "weir", "picker", "true", "Running", "9090", "9090", "picker", ""},
		{"another port of it", "weir", "picker", "true", "Running", "9002", "9090", "", ""},
		{"one without annotations", "weir", "gateway", "", "Running", "8080", "", "", ""},
		{"one that has ended", "weir", "picker", "true", "Succeeded", "9090", "9090", "", ""},
		{"somebody else's", "other", "picker", "true", "Running", "9090", "9090", "", ""},
	} {
		b := labels.NewBuilder(labels.FromStrings("__address__", "10.0.0.1:"+c.port, pod+"label_app_kubernetes_io_part_of", c.part,
			pod+"label_app_kubernetes_io_component", c.component, pod+"annotation_prometheus_io_scrape", c.scrape, pod+"annotation_prometheus_io_port", c.annotated,
			pod+"container_port_number", c.port, pod+"phase", c.phase, pod+"name", "p", "__meta_kubernetes_namespace", "ns", "job", "pods"))
		keep := relabel.ProcessBuilder(b, steps...)
		got := b.Labels()
		if keep != (c.job != "") {
			t.Errorf("%s: scraped is %v", c.says, keep)
		} else if keep && (got.Get("job") != c.job || got.Get("inference_pool") != c.inference || got.Get("pod") != "p" || got.Get("namespace") != "ns") {
			t.Errorf("%s: %s", c.says, got)
		}
	}
}
