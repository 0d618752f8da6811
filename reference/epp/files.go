package epp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/picker"
)

// LabelRole is the endpoint label that says in which stage an endpoint counts.
const LabelRole = "llm-d.ai/role"

// RoleOf maps the value of LabelRole (spec/endpoint-picker.md §4.3).
func RoleOf(label string) picker.Role {
	switch label {
	case "prefill", "encode-prefill":
		return picker.RolePrefill
	case "", "decode":
		return picker.RoleDecode
	case "prefill-decode", "both", "encode-prefill-decode":
		return picker.RoleBoth
	}
	return picker.RoleNone
}

// fileLimit bounds an endpoints or objectives file in bytes (spec/endpoint-picker.md §8.5).
const fileLimit = 1 << 20

type endpointsDoc struct {
	Endpoints []struct {
		Name      string            `yaml:"name"`
		Namespace string            `yaml:"namespace"`
		Address   string            `yaml:"address"`
		Port      string            `yaml:"port"`
		Labels    map[string]string `yaml:"labels"`
	} `yaml:"endpoints"`
}

// ParseEndpoints reads `endpoints: [{name, address, port, labels}]`. All errors are reported, joined; name is the file's.
func ParseEndpoints(name string, doc []byte) ([]picker.Endpoint, error) {
	var d endpointsDoc
	errs := strict(name, doc, &d)
	names, addresses := map[string]bool{}, map[string]bool{}
	var out []picker.Endpoint
	for i, e := range d.Endpoints {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: endpoints[%d].%s", name, i, fmt.Sprintf(format, args...)))
		}
		port, err := strconv.Atoi(e.Port)
		if err != nil || port < 1 || port > 65535 {
			bad("port: expected 1..65535, got %q", e.Port)
		}
		if net.ParseIP(e.Address) == nil {
			bad("address: expected an IP address, got %q", e.Address)
		}
		if e.Name == "" {
			bad("name: missing")
		} else if names[e.Name] {
			bad("name: %q is used twice", e.Name)
		}
		address := net.JoinHostPort(e.Address, e.Port)
		if addresses[address] {
			bad("address: %s is used twice", address)
		}
		names[e.Name], addresses[address] = true, true
		out = append(out, picker.Endpoint{Name: e.Name, Address: address, Role: RoleOf(e.Labels[LabelRole]), Labels: labelText(e.Labels)})
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

// labelText is the canonical form of an endpoint's labels.
func labelText(m map[string]string) string {
	pairs := make([]string, 0, len(m))
	for k, v := range m {
		pairs = append(pairs, k+"="+v)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// ParseObjectives reads `objectives: {name: priority}`.
func ParseObjectives(name string, doc []byte) (map[string]int, error) {
	var d struct {
		Objectives map[string]int32 `yaml:"objectives"`
	}
	if errs := strict(name, doc, &d); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	out := map[string]int{}
	for objective, p := range d.Objectives {
		out[objective] = int(p)
	}
	return out, nil
}

var goType = regexp.MustCompile(` in type \S.*$`)

// strict decodes doc into v and returns every complaint as name:line. An empty file is an empty document.
func strict(name string, doc []byte, v any) []error {
	d := yaml.NewDecoder(bytes.NewReader(doc))
	d.KnownFields(true)
	err := d.Decode(v)
	var typed *yaml.TypeError
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return nil
	case errors.As(err, &typed):
		var out []error
		for _, e := range typed.Errors {
			line, text, _ := strings.Cut(strings.TrimPrefix(e, "line "), ": ")
			out = append(out, fmt.Errorf("%s:%s: %s", name, line, goType.ReplaceAllString(text, "")))
		}
		return out
	}
	return []error{fmt.Errorf("%s: %w", name, err)}
}

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	doc, err := io.ReadAll(io.LimitReader(f, fileLimit+1))
	if err == nil && len(doc) > fileLimit {
		err = fmt.Errorf("%s: larger than %d bytes", path, fileLimit)
	}
	return doc, err
}

// watched is a file whose content is applied at start and again after each change. Its content is compared, not its time stamp: a
// change within the file system's time resolution counts too.
type watched struct {
	path  string
	apply func(name string, doc []byte) error
	last  []byte
}

// load reads the file once; an error leaves what was applied before.
func (w *watched) load() (changed bool, err error) {
	doc, err := readLimited(w.path)
	if err != nil {
		return false, err
	}
	if w.last != nil && bytes.Equal(doc, w.last) {
		return false, nil
	}
	w.last = append([]byte{}, doc...)
	return true, w.apply(w.path, doc)
}

// reload is something that may have changed outside.
type reload struct {
	what string
	load func() (changed bool, err error)
}

// watch looks at everything until ctx ends. Each problem is logged once, not at every look.
func watch(ctx context.Context, every time.Duration, reloads []reload, log *slog.Logger) {
	told := map[string]string{}
	for clock.Sleep(ctx, every) {
		for _, r := range reloads {
			changed, err := r.load()
			switch {
			case err != nil && told[r.what] != err.Error():
				told[r.what] = err.Error()
				log.Error("reload refused, the old content stays", "file", r.what, "error", err)
			case changed && err == nil:
				delete(told, r.what)
				log.Info("reloaded", "file", r.what)
			}
		}
	}
}
