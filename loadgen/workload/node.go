package workload

import (
	"math"
	"strconv"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v3"
)

// object is a YAML mapping whose keys are known fields, each once.
type object struct {
	r      *reader
	path   string
	fields map[string]*yaml.Node
}

func (o object) at(key string) string {
	if o.path == "" {
		return key
	}
	return o.path + "." + key
}

// object reads a mapping and reports unknown and repeated keys. An explicit null is a mistake here, as it would read as "unset".
func (r *reader) object(n *yaml.Node, path string, known ...string) (object, bool) {
	n = target(n)
	r.lines[path] = n.Line
	o := object{r, path, map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		r.fail(n.Line, path, "%s where fields belong: use %s", describe(n), strings.Join(known, ", "))
		return o, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], target(n.Content[i+1])
		at := o.at(key.Value)
		switch {
		case !isOneOf(key.Value, known):
			r.fail(key.Line, at, "unknown field: use %s", strings.Join(known, ", "))
		case o.fields[key.Value] != nil:
			r.fail(key.Line, at, "field given twice: remove one")
		case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
			r.fail(key.Line, at, "no value: give one or remove the field")
		default:
			o.fields[key.Value] = value
			r.lines[at] = key.Line
		}
	}
	return o, true
}

// object reads a field that is itself a mapping; false if it is absent or not one.
func (o object) object(key string, known ...string) (object, bool) {
	n := o.fields[key]
	if n == nil {
		return object{}, false
	}
	return o.r.object(n, o.at(key), known...)
}

func (r *reader) list(o object, key string) []*yaml.Node {
	n := o.fields[key]
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.fail(n.Line, o.at(key), "%s where a list belongs: start each entry with \"- \"", describe(n))
		return nil
	}
	if len(n.Content) > MaxTenants {
		r.fail(n.Line, o.at(key), "%d entries: use at most %d", len(n.Content), MaxTenants)
		return nil
	}
	return n.Content
}

// target follows an alias. Aliases cost nothing here: the walk is as deep as the fields, whatever the file nests.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return quote(n.Value)
}

func isOneOf(s string, list []string) bool {
	for _, v := range list {
		if s == v {
			return true
		}
	}
	return false
}

// scalar hands the text of a field to read; a read that fails reports what is wanted instead.
func scalar[T any](o object, key, want string, read func(n *yaml.Node) (T, bool)) T {
	var zero T
	n := o.fields[key]
	if n == nil {
		return zero
	}
	if n.Kind == yaml.ScalarNode {
		if v, ok := read(n); ok {
			return v
		}
	}
	o.r.fail(n.Line, o.at(key), "%s is no %s", describe(n), want)
	return zero
}

// text takes any scalar: a fairness id of 17 or true needs no quotes.
func text(o object, key string) string {
	return scalar(o, key, "text", func(n *yaml.Node) (string, bool) { return n.Value, true })
}

func boolean(o object, key string) bool {
	return scalar(o, key, "boolean: use true or false", func(n *yaml.Node) (bool, bool) {
		return n.Value == "true", n.Tag == "!!bool" && (n.Value == "true" || n.Value == "false")
	})
}

func number(o object, key string) float64 {
	return scalar(o, key, "number: write e.g. 2.5", func(n *yaml.Node) (float64, bool) {
		v, err := strconv.ParseFloat(n.Value, 64)
		return v, err == nil && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 && !math.IsNaN(v) && !math.IsInf(v, 0)
	})
}

func integer(o object, key string) int {
	return scalar(o, key, "whole number", func(n *yaml.Node) (int, bool) {
		v, err := strconv.ParseInt(n.Value, 10, 32)
		return int(v), err == nil && n.Tag == "!!int"
	})
}

func duration(o object, key string) time.Duration {
	return scalar(o, key, "duration: write a number with its unit, e.g. 30s or 250ms", func(n *yaml.Node) (time.Duration, bool) {
		v, err := time.ParseDuration(n.Value)
		return v, err == nil
	})
}
