package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/sut"
)

type upConfigureCmd struct {
	Control    string `required:"" placeholder:"URL" help:"Control address of the stack, as weir up prints it."`
	Do         string `enum:"configure,update,try,stop,start" default:"configure" help:"configure: all of it anew; update: pool and objectives of the picker that runs; try: start a second picker with the document and end it; stop, start: the picker, gracefully."`
	Config     string `type:"path" help:"EndpointPickerConfig document."`
	Objectives string `type:"path" help:"YAML: objectives: {name: priority}."`
	Endpoints  string `type:"path" help:"YAML: endpoints: [{name, address, port, labels}]."`
	Stable     bool   `help:"With --do try: refuse plugins of alpha stability."`
}

// Help is the long help of the command.
func (upConfigureCmd) Help() string {
	return `Example:
  weir up configure --control http://127.0.0.1:40123 --config epp.yaml --objectives objectives.yaml --endpoints endpoints.yaml`
}

// Run sends one order and tells whether it was obeyed.
func (c *upConfigureCmd) Run(con *console) error {
	o := order{Stable: c.Stable}
	var doc struct {
		Endpoints  []orderedPod   `yaml:"endpoints"`
		Objectives map[string]int `yaml:"objectives"`
	}
	for _, f := range []struct{ flag, file string }{{"config", c.Config}, {"objectives", c.Objectives}, {"endpoints", c.Endpoints}} {
		if f.file == "" {
			continue
		}
		text, err := os.ReadFile(f.file)
		if err != nil {
			return fmt.Errorf("--%s: %w", f.flag, err)
		}
		if f.flag == "config" {
			o.Document = string(text)
		} else if err := yaml.Unmarshal(text, &doc); err != nil {
			return fmt.Errorf("--%s: %s: %w", f.flag, f.file, err)
		}
	}
	o.Endpoints, o.Objectives = doc.Endpoints, doc.Objectives
	if c.Config == "" && (c.Do == "configure" || c.Do == "try") {
		return fmt.Errorf("--config: missing for --do %s", c.Do)
	}
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(con.ctx, http.MethodPost, strings.TrimSuffix(c.Control, "/")+"/"+c.Do, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("--control: write http://host:port, as weir up prints it: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("--control: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return err
}

// writeSUT writes the descriptor of the stack.
func (c *upRunCmd) writeSUT(r *upRouter, gateway, control string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("--write-sut: %w", err)
	}
	e := r.server()
	d := struct {
		Organization string       `yaml:"organization"`
		Project      string       `yaml:"project"`
		Version      string       `yaml:"version"`
		Features     []string     `yaml:"features,flow"`
		Running      *sut.Running `yaml:"running"`
	}{Organization: "weir", Project: "weir up", Version: Version}
	for _, f := range sut.Features() {
		if f != sut.KubeAPI {
			d.Features = append(d.Features, string(f))
		}
	}
	run := &sut.Running{Gateway: "http://" + gateway, Metrics: "http://" + e.MetricsAddr() + "/metrics", ExtProc: e.GRPCAddr(), Health: e.HealthAddr(),
		Simulators: map[string]string{}}
	for _, p := range r.addresses {
		run.Simulators[p.Name] = "http://" + p.Address
	}
	if c.Configuration != "" {
		run.Configurations = []string{c.Configuration}
	} else {
		order := shell([]string{exe, "up", "configure", "--control", "http://" + control}) + " "
		files := "--config {{.Config}} --objectives {{.Objectives}} --endpoints {{.Endpoints}}"
		run.Configure = sut.Hooks{Command: order + files, Update: order + "--do update " + files, Try: order + "--do try --config {{.Config}} --stable={{.Stable}}",
			Stop: order + "--do stop", Start: order + "--do start", Ready: "http://" + control + "/ready"}
	}
	d.Running = run
	text, err := yaml.Marshal(d)
	if err != nil {
		return fmt.Errorf("--write-sut: %w", err)
	}
	next := c.WriteSUT + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return fmt.Errorf("--write-sut: %w", err)
	}
	return os.Rename(next, c.WriteSUT)
}
