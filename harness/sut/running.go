package sut

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/profile"
)

// Configurable is the ability to be given the configuration that a scenario needs.
const Configurable Feature = "configure"

// Running says where a router is that already runs, what stands around it, and which configurations it can be judged under.
type Running struct {
	Gateway string `yaml:"gateway,omitempty"` // URL to which clients send
	Metrics string `yaml:"metrics,omitempty"` // URL of the router's metrics page; "": it has none that can be read
	ExtProc string `yaml:"extProc,omitempty"` // host:port of ext_proc, on which idle streams are opened; "": nobody knows
	Health  string `yaml:"health,omitempty"`  // host:port of the gRPC health service; "": nobody knows
	// Simulators are the model servers behind it: name -> URL of the admin API. None: nothing can be held, and nobody records what arrives.
	Simulators map[string]string `yaml:"simulators,omitempty"`
	// Addresses are name -> host:port under which the router knows a simulator, where that is not the address of its admin API.
	Addresses map[string]string `yaml:"addresses,omitempty"`
	// Configurations are those that the router has been given, each as the name of a scenario or as a hash (weir list configurations).
	// Without a command that configures it, nothing else can be judged.
	Configurations []string `yaml:"configurations,omitempty"`
	Configure      Hooks    `yaml:"configure,omitempty"`
}

// Hooks are commands with placeholders that do to a router what the harness cannot do by itself.
type Hooks struct {
	Command string `yaml:"command,omitempty"` // gives it configuration, objectives and endpoints, before each scenario
	Update  string `yaml:"update,omitempty"`  // tells it that objectives or endpoints have changed
	Try     string `yaml:"try,omitempty"`     // starts a second one with a document: status 0 when it came up
	Stop    string `yaml:"stop,omitempty"`    // ends it gracefully and returns when it has ended
	Start   string `yaml:"start,omitempty"`   // starts it again after Stop
	Ready   string `yaml:"ready,omitempty"`   // URL that answers 200 once it serves; "": the gateway answers anything
	// Limit bounds each command and the wait for readiness; 0: DefaultHookLimit.
	Limit time.Duration `yaml:"limit,omitempty"`
}

// DefaultHookLimit is the limit of a command that has none.
const DefaultHookLimit = 30 * time.Second

// HookPlaceholders are what the commands may refer to, each as {{.Name}}.
var HookPlaceholders = []string{"Config", "Objectives", "Endpoints", "Scenario", "Gateway", "Stable"}

// Commands lists the commands by the name of their field; "" where there is none.
func (h Hooks) Commands() map[string]string {
	return map[string]string{"command": h.Command, "update": h.Update, "try": h.Try, "stop": h.Stop, "start": h.Start}
}

// Names lists the simulators in order.
func (r Running) Names() []string { return slices.Sorted(maps.Keys(r.Simulators)) }

// Address is the host:port under which the router knows a simulator.
func (r Running) Address(name string) string {
	if a := r.Addresses[name]; a != "" {
		return a
	}
	if u, err := url.Parse(r.Simulators[name]); err == nil {
		return u.Host
	}
	return ""
}

// Validate names every fault of r, with its field.
func (r Running) Validate() error {
	var errs []error
	address := func(field, v string) {
		if _, _, err := net.SplitHostPort(v); v != "" && err != nil {
			errs = append(errs, fmt.Errorf("running.%s: want host:port, got %q", field, v))
		}
	}
	for _, f := range [][2]string{{"gateway", r.Gateway}, {"metrics", r.Metrics}, {"configure.ready", r.Configure.Ready}} {
		errs = append(errs, webAddress("running."+f[0], f[1]))
	}
	for _, name := range r.Names() {
		errs = append(errs, webAddress("running.simulators."+name, cmp.Or(r.Simulators[name], "-")))
	}
	address("extProc", r.ExtProc)
	address("health", r.Health)
	for _, name := range slices.Sorted(maps.Keys(r.Addresses)) {
		address("addresses."+name, r.Addresses[name])
		if r.Simulators[name] == "" {
			errs = append(errs, fmt.Errorf("running.addresses.%s: no simulator has this name", name))
		}
	}
	if r.Configure.Limit < 0 {
		errs = append(errs, fmt.Errorf("running.configure.limit: must not be negative, got %s", r.Configure.Limit))
	}
	if r.Configure.Command == "" && (r.Configure.Update != "" || r.Configure.Try != "") {
		errs = append(errs, errors.New("running.configure.command: missing beside the commands that need it"))
	}
	if (r.Configure.Stop == "") != (r.Configure.Start == "") {
		errs = append(errs, errors.New("running.configure: stop and start go together"))
	}
	return errors.Join(errs...)
}

// webAddress names what is wrong with a URL; "" is none.
func webAddress(field, text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%s: want http://host:port or https://host:port, got %q", field, text)
	}
	return nil
}

// Identity is the hash of what a router is given: two configurations with the same one need no new router. What only the model servers
// are told is no part of it.
func Identity(c Configuration, d profile.Config) (string, error) {
	doc, err := Render(c, d)
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(struct {
		Document   string
		Endpoints  []Endpoint
		Objectives map[string]int
		Objects    []Objective
		Pickers    int
	}{doc, c.Endpoints, c.Objectives, c.Objects, max(1, c.Pickers)})
	if err != nil {
		return "", fmt.Errorf("configuration: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:6]), nil
}
