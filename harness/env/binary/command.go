// Package binary runs a picker that is somebody else's program, with everything it expects around it.
//
//	Command --placeholders--> process group <--signals-- Program
//	Kubernetes API, endpoints file, objectives file <--SetEndpoints, SetObjectives-- Program
//	                                                   log, exit, what it left behind --> evidence
//
// Nothing of it is known but its ports, its exit and what it prints. Whatever it does, at the end none of its processes is left and its
// ports are free again, or Close says which are not. Facts: spec/external-epp.md.
package binary

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

// Values are what a command may refer to, each as {{.Name}}.
type Values struct {
	Config         string // file with the configuration document
	GRPCPort       string // of ext_proc
	HealthPort     string // of the gRPC health service
	MetricsPort    string // of the HTTP metrics page
	PoolName       string // of the InferencePool
	PoolNamespace  string
	Kubeconfig     string // file that leads to the Kubernetes API; KUBECONFIG names it too
	EndpointsFile  string // YAML, endpoints: [{name, address, port, labels}]
	ObjectivesFile string // YAML, objectives: {name: priority}
	SyncRedis      string // URL of the Redis through which pickers tell each other of their load; "" where they do not
}

// placeholders are the names of Values.
var placeholders = []string{"Config", "GRPCPort", "HealthPort", "MetricsPort", "PoolName", "PoolNamespace", "Kubeconfig", "EndpointsFile", "ObjectivesFile", "SyncRedis"}

// Command is a command line with placeholders.
type Command struct {
	text  string
	words []*template.Template
	uses  map[string]bool
	names []string // of the placeholders that it may use
}

// Parse splits a command as a shell does, without expanding anything, and checks its placeholders.
func Parse(text string) (Command, error) {
	c, err := parse(text, placeholders)
	if err == nil && !c.uses["GRPCPort"] {
		err = fmt.Errorf("command %q: it must use {{.GRPCPort}}, or nobody can reach the picker", text)
	}
	return c, err
}

// parse does so for any placeholders.
func parse(text string, names []string) (Command, error) {
	c := Command{text: text, uses: map[string]bool{}, names: names}
	words, err := split(text)
	if err != nil {
		return c, fmt.Errorf("command %q: %w", text, err)
	}
	if len(words) == 0 {
		return c, errors.New("command: it is empty")
	}
	var errs []error
	for _, w := range words {
		t, err := template.New("word").Option("missingkey=error").Parse(w)
		if err != nil {
			errs = append(errs, fmt.Errorf("command %q: %s: %w", text, w, err))
			continue
		}
		c.words = append(c.words, t)
		if err := c.note(w, t); err != nil {
			errs = append(errs, fmt.Errorf("command %q: %w", text, err))
		}
	}
	return c, errors.Join(errs...)
}

// note finds out which placeholders a word uses, by filling in values that cannot occur otherwise.
func (c Command) note(word string, t *template.Template) error {
	values := map[string]string{}
	for _, name := range c.names {
		values[name] = "\x00" + name + "\x00"
	}
	var b strings.Builder
	if err := t.Execute(&b, values); err != nil {
		return fmt.Errorf("%s: unknown placeholder: use {{.%s}}", word, strings.Join(c.names, "}}, {{."))
	}
	for _, name := range c.names {
		if strings.Contains(b.String(), values[name]) {
			c.uses[name] = true
		}
	}
	return nil
}

// Uses tells whether the command refers to a placeholder.
func (c Command) Uses(name string) bool { return c.uses[name] }

// String is the command as it was written.
func (c Command) String() string { return c.text }

// Argv fills the placeholders in.
func (c Command) Argv(v Values) ([]string, error) {
	values := map[string]string{"Config": v.Config, "GRPCPort": v.GRPCPort, "HealthPort": v.HealthPort, "MetricsPort": v.MetricsPort, "PoolName": v.PoolName,
		"PoolNamespace": v.PoolNamespace, "Kubeconfig": v.Kubeconfig, "EndpointsFile": v.EndpointsFile, "ObjectivesFile": v.ObjectivesFile, "SyncRedis": v.SyncRedis}
	return c.fill(values)
}

func (c Command) fill(values map[string]string) ([]string, error) {
	var argv []string
	for _, t := range c.words {
		var b strings.Builder
		if err := t.Execute(&b, values); err != nil {
			return nil, fmt.Errorf("command %q: %w", c.text, err)
		}
		argv = append(argv, b.String())
	}
	return argv, nil
}

// Without is the command without a word; with no such word it is the same.
func (c Command) Without(word string) Command {
	c.words = slices.DeleteFunc(slices.Clone(c.words), func(t *template.Template) bool { return t.Root.String() == word })
	return c
}

// Program is the name of the program, without its folder.
func (c Command) Program() string {
	words, err := split(c.text)
	if err != nil || len(words) == 0 {
		return ""
	}
	return words[0][strings.LastIndexByte(words[0], '/')+1:]
}

// split cuts a command into words at white space. 'Single quotes' keep everything, "double quotes" everything but \" and \\, a
// backslash keeps the next sign; a placeholder is not cut.
func split(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	open := false // a word has begun, be it empty
	rest := []rune(text)
	take := func(n int) { word.WriteString(string(rest[:n])); rest = rest[n:]; open = true }
	for len(rest) > 0 {
		switch r := rest[0]; {
		case r == '{' && len(rest) > 1 && rest[1] == '{':
			n := 4
			for n <= len(rest) && string(rest[n-2:n]) != "}}" {
				n++
			}
			if n > len(rest) {
				return nil, errors.New("a placeholder has no }}")
			}
			take(n)
		case strings.ContainsRune(" \t\n\r", r):
			if open {
				words = append(words, word.String())
				word.Reset()
				open = false
			}
			rest = rest[1:]
		case r == '\\':
			if len(rest) == 1 {
				return nil, errors.New("a backslash stands at the end")
			}
			rest = rest[1:]
			take(1)
		case r == '\'' || r == '"':
			inside, after, ok := quoted(rest)
			if !ok {
				return nil, fmt.Errorf("the quote %c is not closed", r)
			}
			word.WriteString(inside)
			rest, open = after, true
		default:
			take(1)
		}
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}

// quoted reads a quoted part that begins at text[0].
func quoted(text []rune) (inside string, after []rune, ok bool) {
	quote := text[0]
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == quote:
			return b.String(), text[i+1:], true
		case text[i] == '\\' && quote == '"' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
		}
		b.WriteRune(text[i])
	}
	return "", nil, false
}
