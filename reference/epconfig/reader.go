package epconfig

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// reader walks YAML nodes and collects every complaint with its line. Decoding through nodes instead of structs keeps the line of
// each key for semantic errors too, and reports a wrong type without hiding the rest of the document.
type reader struct {
	file  string
	hints map[string]string // by full path of a refused key: why, and what to do instead
	errs  []error
	warn  []string
}

// field is one key of a mapping.
type field struct{ key, value *yaml.Node }

// object is one mapping, its keys checked against what is allowed there.
type object struct {
	r      *reader
	node   *yaml.Node
	path   string
	fields map[string]field
}

func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s:%d: "+format, append([]any{r.file, n.Line}, args...)...))
}

func (r *reader) warnAt(n *yaml.Node, format string, args ...any) {
	r.warn = append(r.warn, fmt.Sprintf("%s:%d: "+format, append([]any{r.file, n.Line}, args...)...))
}

func (r *reader) err() error { return errors.Join(r.errs...) }

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// object reads a mapping. Unknown and repeated keys are errors; a key without a value counts as absent.
func (r *reader) object(n *yaml.Node, path string, allowed ...string) object {
	n = resolve(n)
	o := object{r: r, node: n, path: path, fields: map[string]field{}}
	if isNull(n) {
		return o
	}
	if n.Kind != yaml.MappingNode {
		r.fail(n, "%s: expected a mapping", orDocument(path))
		return o
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		full := join(path, key.Value)
		if seen[key.Value] {
			r.fail(key, "strict decoding error: duplicate field %q", full)
			continue
		}
		seen[key.Value] = true
		if !slices.Contains(allowed, key.Value) {
			r.unknown(key, full)
			continue
		}
		if !isNull(value) {
			o.fields[key.Value] = field{key, value}
		}
	}
	return o
}

// unknown refuses a key, with a hint where its name is known from elsewhere.
func (r *reader) unknown(key *yaml.Node, full string) {
	if hint, ok := r.hints[index.ReplaceAllString(full, "[]")]; ok {
		r.fail(key, "strict decoding error: unknown field %q: %s", full, hint)
		return
	}
	r.fail(key, "strict decoding error: unknown field %q", full)
}

var index = regexp.MustCompile(`\[[0-9]+\]`)

// mapping reads a mapping whose keys are data.
func (r *reader) mapping(n *yaml.Node, path string) object {
	var keys []string
	for i := 0; i+1 < len(resolve(n).Content) && resolve(n).Kind == yaml.MappingNode; i += 2 {
		keys = append(keys, resolve(n).Content[i].Value)
	}
	return r.object(n, path, keys...)
}

// keys are the keys that have a value, sorted.
func (o object) keys() []string { return slices.Sorted(maps.Keys(o.fields)) }

func orDocument(path string) string {
	if path == "" {
		return "document"
	}
	return path
}

func (o object) has(key string) bool { _, ok := o.fields[key]; return ok }

// at is the node to blame for a key: its own line, or the mapping's where it is missing.
func (o object) at(key string) *yaml.Node {
	if f, ok := o.fields[key]; ok {
		return f.key
	}
	return o.node
}

func (o object) wrong(key, want string) {
	f := o.fields[key]
	got := f.value.Value
	if f.value.Kind != yaml.ScalarNode {
		got = "a list or mapping"
	}
	o.r.fail(f.value, "%s: expected %s, got %q", join(o.path, key), want, got)
}

// list returns the elements under key, with the path of each.
func (o object) list(key string) []*yaml.Node {
	f, ok := o.fields[key]
	if !ok {
		return nil
	}
	if f.value.Kind != yaml.SequenceNode {
		o.wrong(key, "a list")
		return nil
	}
	out := make([]*yaml.Node, len(f.value.Content))
	for i, n := range f.value.Content {
		out[i] = resolve(n)
	}
	return out
}

func (o object) child(key string, allowed ...string) (object, bool) {
	f, ok := o.fields[key]
	if !ok {
		return object{r: o.r, node: o.node, path: join(o.path, key), fields: map[string]field{}}, false
	}
	return o.r.object(f.value, join(o.path, key), allowed...), true
}

func (o object) str(key, absent string) string {
	f, ok := o.fields[key]
	if !ok {
		return absent
	}
	if f.value.Kind != yaml.ScalarNode || f.value.Tag != "!!str" {
		o.wrong(key, "a string")
		return absent
	}
	return f.value.Value
}

// strings returns the strings under key.
func (o object) strings(key string) []string {
	var out []string
	for i, n := range o.list(key) {
		if n.Kind != yaml.ScalarNode || n.Tag != "!!str" || n.Value == "" {
			o.r.fail(n, "%s[%d]: expected a string", join(o.path, key), i)
			continue
		}
		out = append(out, n.Value)
	}
	return out
}

// lowered returns the header names under key in lower case, as they are on the wire.
func (o object) lowered(key string) []string {
	out := o.strings(key)
	for i := range out {
		out[i] = strings.ToLower(out[i])
	}
	return out
}

func (o object) boolean(key string, absent bool) bool {
	f, ok := o.fields[key]
	if !ok {
		return absent
	}
	if f.value.Kind != yaml.ScalarNode || f.value.Tag != "!!bool" {
		o.wrong(key, "true or false")
		return absent
	}
	return strings.EqualFold(f.value.Value, "true")
}

func (o object) integer(key string, absent int) int {
	f, ok := o.fields[key]
	if !ok {
		return absent
	}
	v, err := strconv.ParseInt(f.value.Value, 10, 32)
	if f.value.Kind != yaml.ScalarNode || f.value.Tag != "!!int" || err != nil {
		o.wrong(key, "a 32-bit integer")
		return absent
	}
	return int(v)
}

func (o object) number(key string, absent float64) float64 {
	f, ok := o.fields[key]
	if !ok {
		return absent
	}
	v, err := strconv.ParseFloat(f.value.Value, 64)
	if f.value.Kind != yaml.ScalarNode || (f.value.Tag != "!!float" && f.value.Tag != "!!int") || err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		o.wrong(key, "a number")
		return absent
	}
	return v
}

func (o object) duration(key string, absent time.Duration) time.Duration {
	f, ok := o.fields[key]
	if !ok {
		return absent
	}
	d, err := time.ParseDuration(f.value.Value)
	if f.value.Kind != yaml.ScalarNode || err != nil {
		o.wrong(key, `a duration such as "500ms" or "1m"`)
		return absent
	}
	return d
}

func (o object) quantity(key string, absent int64) int64 {
	f, ok := o.fields[key]
	if !ok {
		return absent
	}
	v, err := parseQuantity(f.value.Value)
	if f.value.Kind != yaml.ScalarNode || err != nil {
		o.wrong(key, `a whole quantity such as 2000, "1k" or "1Gi"`)
		return absent
	}
	return v
}

var suffixes = map[string]*big.Rat{
	"": big.NewRat(1, 1), "m": big.NewRat(1, 1000), "k": big.NewRat(1e3, 1), "M": big.NewRat(1e6, 1), "G": big.NewRat(1e9, 1),
	"T": big.NewRat(1e12, 1), "P": big.NewRat(1e15, 1), "E": big.NewRat(1e18, 1), "Ki": big.NewRat(1<<10, 1),
	"Mi": big.NewRat(1<<20, 1), "Gi": big.NewRat(1<<30, 1), "Ti": big.NewRat(1<<40, 1), "Pi": big.NewRat(1<<50, 1), "Ei": big.NewRat(1<<60, 1),
}

// parseQuantity reads a Kubernetes quantity that is a whole number. The length and exponent are bounded because an exact fraction
// of "1e999999999" would not fit into memory.
func parseQuantity(s string) (int64, error) {
	bad := fmt.Errorf("%q is no whole quantity", s)
	if len(s) == 0 || len(s) > 40 {
		return 0, bad
	}
	end := strings.IndexFunc(s, func(c rune) bool { return (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' })
	if end < 0 {
		end = len(s)
	}
	digits, suffix := s[:end], s[end:]
	scale, ok := suffixes[suffix]
	if !ok {
		exp, err := strconv.Atoi(strings.TrimLeft(suffix, "eE"))
		if err != nil || len(suffix) < 2 || strings.TrimLeft(suffix[1:], "eE") != suffix[1:] || exp < -30 || exp > 30 {
			return 0, bad
		}
		scale, _ = new(big.Rat).SetString("1e" + strconv.Itoa(exp))
	}
	v, ok := new(big.Rat).SetString(digits)
	if !ok {
		return 0, bad
	}
	if v.Mul(v, scale); !v.IsInt() || !v.Num().IsInt64() {
		return 0, bad
	}
	return v.Num().Int64(), nil
}
