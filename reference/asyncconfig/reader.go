package asyncconfig

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reader walks documents and collects every complaint with its file and line.
type reader struct {
	lenient bool
	strict  bool // whatever lenient says
	errs    []error
	warn    []string
}

func (r *reader) failf(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

func (r *reader) warnf(format string, args ...any) {
	r.warn = append(r.warn, fmt.Sprintf(format, args...))
}

// tolerate is an error, or with --lenient a warning.
func (r *reader) tolerate(format string, args ...any) {
	switch {
	case r.strict:
		r.failf(format, args...)
	case r.lenient:
		r.warnf(format, args...)
	default:
		r.failf(format+" (--lenient ignores it, as the guide's processor does)", args...)
	}
}

// strictly reads what the guide's processor reads strictly as well (AP-MERGE-11, AP-XFORM-06).
func (r *reader) strictly(read func()) {
	r.strict = true
	read()
	r.strict = false
}

func (r *reader) err() error { return errors.Join(r.errs...) }

// object is one JSON object, its keys checked against what is known there.
type object struct {
	r    *reader
	file string
	path string
	node *node
	by   map[string]field
}

// object reads an object. A repeated key is an error, an unknown one too unless lenient; null counts as absent.
func (r *reader) object(file, path string, n *node, known ...string) object {
	o := object{r: r, file: file, path: path, node: n, by: map[string]field{}}
	if n.kind != kindObject {
		r.failf("%s:%d: %s: expected an object, got %s", file, n.line, orDocument(path), n.kind)
		return o
	}
	for _, f := range n.fields {
		if _, again := o.by[f.name]; again {
			r.failf("%s:%d: %s: appears twice", file, f.line, join(path, f.name))
			continue
		}
		if !slices.Contains(known, f.name) && known != nil {
			r.tolerate("%s:%d: unknown field %q; known here: %s", file, f.line, join(path, f.name), strings.Join(known, ", "))
			continue
		}
		if f.value.kind != kindNull {
			o.by[f.name] = f
		}
	}
	return o
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func orDocument(path string) string {
	if path == "" {
		return "the document"
	}
	return path
}

func (o object) has(key string) bool { _, ok := o.by[key]; return ok }

func (o object) line(key string) int {
	if f, ok := o.by[key]; ok {
		return f.line
	}
	return o.node.line
}

func (o object) fail(key, format string, args ...any) {
	o.r.failf("%s:%d: %s: %s", o.file, o.line(key), join(o.path, key), fmt.Sprintf(format, args...))
}

func (o object) want(key string, k kind) (*node, bool) {
	f, ok := o.by[key]
	if ok && f.value.kind != k {
		o.fail(key, "expected %s, got %s", k, f.value.kind)
		return nil, false
	}
	return f.value, ok
}

func (o object) str(key, absent string) string {
	if n, ok := o.want(key, kindString); ok {
		return n.text
	}
	return absent
}

// required is a string that must be there and not be empty.
func (o object) required(key string) string {
	v := o.str(key, "")
	if v == "" && (!o.has(key) || o.by[key].value.kind == kindString) {
		o.fail(key, "is required")
	}
	return v
}

func (o object) boolean(key string, absent bool) bool {
	if n, ok := o.want(key, kindBool); ok {
		return n.text == "true"
	}
	return absent
}

// natural is an integer of at least low.
func (o object) natural(key string, absent, low int) int {
	n, ok := o.want(key, kindNumber)
	if !ok {
		return absent
	}
	v, err := strconv.Atoi(n.text)
	if err != nil || v < low || v > math.MaxInt32 {
		o.fail(key, "expected an integer of at least %d, got %s", low, n.text)
		return absent
	}
	return v
}

func (o object) list(key string) []*node {
	n, ok := o.want(key, kindArray)
	if !ok {
		return nil
	}
	return n.items
}

// stringMap reads an object whose values are strings.
func (o object) stringMap(key string) map[string]string {
	n, ok := o.want(key, kindObject)
	if !ok {
		return nil
	}
	in := o.r.object(o.file, join(o.path, key), n)
	out := map[string]string{}
	for _, f := range n.fields {
		out[f.name] = in.str(f.name, "")
	}
	return out
}

// params are the parameters of a gate: strings, or the values that these would be.
type params struct{ object }

// text is a parameter as text; ok is false if it is not there.
func (p params) text(key string) (string, bool) {
	f, ok := p.by[key]
	if !ok {
		return "", false
	}
	switch f.value.kind {
	case kindString, kindNumber, kindBool:
		return f.value.text, true
	}
	p.fail(key, "expected a string, got %s", f.value.kind)
	return "", false
}

func (p params) str(key, absent string) string {
	if v, ok := p.text(key); ok {
		return v
	}
	return absent
}

func (p params) required(key string) string {
	v := p.str(key, "")
	if v == "" {
		p.fail(key, "is required")
	}
	return v
}

// number is a finite number in [low, high].
func (p params) number(key string, absent, low, high float64) float64 {
	text, ok := p.text(key)
	if !ok {
		return absent
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(v) || v < low || v > high {
		p.fail(key, "expected a number from %v to %v, got %q", low, high, text)
		return absent
	}
	return v
}

// positive is a required positive integer.
func (p params) positive(key string) int {
	text, ok := p.text(key)
	v, err := strconv.Atoi(strings.TrimSpace(text))
	if !ok || err != nil || v <= 0 {
		p.fail(key, "a positive integer is required, got %q", text)
		return 1
	}
	return v
}

func (p params) duration(key string, absent time.Duration) time.Duration {
	text, ok := p.text(key)
	if !ok {
		return absent
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		p.fail(key, `expected a positive duration such as "1m" or "10s", got %q`, text)
		return absent
	}
	return d
}

// choice is one of some words.
func (p params) choice(key, absent string, words ...string) string {
	v := p.str(key, absent)
	if !slices.Contains(words, v) {
		p.fail(key, "expected %s, got %q", strings.Join(words, " or "), v)
		return absent
	}
	return v
}

// document is a parameter that holds JSON, as text or as it is; nil if it is not there or wrong.
func (p params) document(key string) *node {
	f, ok := p.by[key]
	if !ok {
		return nil
	}
	if f.value.kind != kindString {
		return f.value
	}
	n, err := parseJSON([]byte(f.value.text), f.line)
	if err != nil {
		_, why, _ := strings.Cut(err.Error(), ": ")
		p.fail(key, "its JSON text: %s", why)
		return nil
	}
	return n
}
