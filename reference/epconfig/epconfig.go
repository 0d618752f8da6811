// Package epconfig turns an EndpointPickerConfig document into the picker's configuration: strictly, and with all errors at once.
//
//	YAML --nodes--> keys checked --plugins, profiles, flowControl--> picker.Config
//	                     |                     |
//	                     +------ errors: file:line, key ------+
//
// The grammar and every default come from spec/endpoint-picker.md §3; what differs between published routers is in Contract.
package epconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/reference/picker"
)

// Config is a loaded document.
type Config struct {
	Picker picker.Config
	// Contract is the behaviour whose defaults were filled in.
	Contract Contract
	// FlowControl tells whether the feature gate is on. With the gate off nothing is queued and only two things of Picker count:
	// Scheduling, and Flow.Detector for legacy admission (LegacyCeiling).
	FlowControl bool
	// SessionHeaders are looked at, in this order, for a fairness ID where the request has none; nil without agent-identity.
	SessionHeaders []string
	// EndpointsFile is the path of file-discovery; "" if the document uses none.
	EndpointsFile string
	// Passthrough dispatches unknown paths as opaque bodies.
	Passthrough bool
	// Warnings are remarks that do not keep the picker from starting, each with file:line.
	Warnings []string

	alpha []error // one for each declared plugin of alpha stability
}

// LegacyCeiling is the saturation from which legacy admission (gate off) refuses requests of negative priority, with 429 and no
// reason header; all others pass (spec/endpoint-picker.md §5.4).
const LegacyCeiling = 1.0

// Stable says which alpha plugins keep the picker from starting without --allow-experimental-plugins (FC-CFG-14); nil for a
// contract without that flag.
func (c Config) Stable() error {
	if !c.Contract.StabilityGate {
		return nil
	}
	return errors.Join(c.alpha...)
}

const gateFlowControl = "flowControl"

// The idle times are constants of the router, not settings (spec/endpoint-picker.md §3.2).
const (
	flowIdle = 5 * time.Minute
	bandIdle = 10 * time.Minute
)

// foreignLimit is the age from which what another replica has in flight no longer counts: ten of its heartbeats.
const foreignLimit = 2 * time.Second

// loader is one Load in progress.
type loader struct {
	reader
	c            Contract
	declared     map[string]plugin
	order        []string   // declaration order
	detectorRef  string     // name of the selected detector
	producerRef  *yaml.Node // its inFlightLoadProducerName; nil: not given
	programAware string     // name of the program-aware-fairness in use
	cfg          Config
}

// Default is the configuration of an empty document with flow control switched on.
func Default(c Contract) Config {
	cfg, err := Load("default", []byte("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\n"), c)
	if err != nil {
		panic(err) // the document is a literal
	}
	return cfg
}

// Load reads one document; name is the file name shown in errors. All errors are reported, joined, one a line.
func Load(name string, doc []byte, c Contract) (Config, error) {
	l := &loader{reader: reader{file: name, hints: hintsFor(c)}, c: c, declared: map[string]plugin{}}
	root, err := parse(name, doc)
	if err != nil {
		return Config{}, err
	}
	o := l.object(root, "", "apiVersion", "kind", "featureGates", "plugins", "schedulingProfiles", "dataLayer", "flowControl",
		"requestHandler", "saturationDetector", "parser")
	l.envelope(o)
	l.cfg = Config{Contract: c, Passthrough: c.Passthrough}
	l.gates(o)
	l.plugins(o)
	l.flowControl(o)
	l.tokenAccounting()
	l.profiles(o)
	l.dataLayer(o)
	l.requestHandler(o)
	if err := l.err(); err != nil {
		return Config{}, err
	}
	l.cfg.Warnings = l.warn
	return l.cfg, nil
}

// parse returns the root node of the only document.
func parse(name string, doc []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(doc))
	var root yaml.Node
	if err := d.Decode(&root); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s:1: the document is empty", name)
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var more yaml.Node
	if err := d.Decode(&more); err == nil {
		return nil, fmt.Errorf("%s:%d: a second document in the file", name, more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(root.Content) == 0 {
		return nil, fmt.Errorf("%s:1: the document is empty", name)
	}
	return root.Content[0], nil
}

func (l *loader) envelope(o object) {
	switch v := o.str("apiVersion", ""); v {
	case "llm-d.ai/v1alpha1":
	case "inference.networking.x-k8s.io/v1alpha1":
		if l.c.Name != RHOAI34 {
			l.warnAt(o.at("apiVersion"), "apiVersion: %s is deprecated, use llm-d.ai/v1alpha1", v)
		}
	default:
		l.fail(o.at("apiVersion"), "apiVersion: expected llm-d.ai/v1alpha1 or inference.networking.x-k8s.io/v1alpha1, got %q", v)
	}
	if k := o.str("kind", ""); k != "EndpointPickerConfig" {
		l.fail(o.at("kind"), "kind: expected EndpointPickerConfig, got %q", k)
	}
}

func (l *loader) gates(o object) {
	for i, n := range o.list("featureGates") {
		if n.Kind != yaml.ScalarNode {
			l.fail(n, "featureGates[%d]: expected a string", i)
			continue
		}
		name, value, valued := strings.Cut(n.Value, "=")
		if !slices.Contains(l.c.gates, name) || (valued && !l.c.GateValues) {
			l.fail(n, "featureGates[%d]: feature gate '%s' is unknown or unregistered", i, n.Value)
			continue
		}
		if valued && value != "true" && value != "false" {
			l.fail(n, "featureGates[%d]: %q is neither true nor false", i, value)
		}
		if name == gateFlowControl {
			l.cfg.FlowControl = value != "false"
		}
	}
}

func (l *loader) dataLayer(root object) {
	o, ok := root.child("dataLayer", "injectDefaults", "sources", "discovery")
	if !ok {
		return
	}
	o.boolean("injectDefaults", true)
	for i, n := range o.list("sources") {
		path := fmt.Sprintf("dataLayer.sources[%d]", i)
		src := l.object(n, path, "pluginRef", "extractors")
		l.defined(src)
		for j, e := range src.list("extractors") {
			l.defined(l.object(e, fmt.Sprintf("%s.extractors[%d]", path, j), "pluginRef"))
		}
	}
	d, ok := o.child("discovery", "pluginRef")
	if !ok {
		return
	}
	if p, ok := l.defined(d); ok {
		if f, ok := p.value.(discovery); ok {
			l.cfg.EndpointsFile = f.path
		} else if p.value != nil {
			l.fail(d.at("pluginRef"), "dataLayer.discovery.pluginRef: plugin of type %s does not implement discovery", p.typ)
		}
	}
}

// defined finds the plugin that a pluginRef names.
func (l *loader) defined(o object) (plugin, bool) {
	const key = "pluginRef"
	ref := o.str(key, "")
	p, ok := l.declared[ref]
	if !ok {
		l.fail(o.at(key), "%s: references undefined plugin '%s'", join(o.path, key), ref)
	}
	return p, ok
}

func (l *loader) requestHandler(root object) {
	var refs []object
	if o, ok := root.child("requestHandler", "parsers"); ok {
		for i, n := range o.list("parsers") {
			refs = append(refs, l.object(n, fmt.Sprintf("requestHandler.parsers[%d]", i), "pluginRef"))
		}
	}
	if o, ok := root.child("parser", "pluginRef"); ok {
		l.warnAt(root.at("parser"), "parser: deprecated, use requestHandler.parsers")
		refs = append(refs, o)
	}
	if len(refs) > 0 {
		l.cfg.Passthrough = false
	}
	for _, o := range refs {
		p, ok := l.defined(o)
		if !ok || p.value == nil {
			continue
		}
		v, ok := p.value.(parser)
		if !ok {
			l.fail(o.at("pluginRef"), "%s.pluginRef: plugin of type %s does not implement a parser", o.path, p.typ)
		}
		l.cfg.Passthrough = l.cfg.Passthrough || v.passthrough
	}
}
