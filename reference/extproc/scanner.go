package extproc

import (
	"strconv"

	"github.com/llm-weir/weir/reference/picker"
)

// Usage is what a response says of its tokens, as far as it does.
type Usage struct {
	Prompt, Completion, Cached int64
	Known                      bool // the response named at least one of them
}

// Picker is the part that the picker accounts.
func (u Usage) Picker() picker.Usage { return picker.Usage{Prompt: u.Prompt, Completion: u.Completion} }

// scanner follows JSON documents whose bytes come in pieces cut anywhere. It looks at two things, both at fixed places of the
// document and nowhere else: the model's name, which it replaces, and the token usage, which it reads.
//
//	{"model": NAME, "usage": {"prompt_tokens": N, ..., "prompt_tokens_details": {"cached_tokens": N}}}
//	{"message": {"model": NAME, "usage": ...}}      anthropic; "response" instead of "message" for /v1/responses
//
// Whatever a model has generated is inside a string, and strings are skipped as strings: no text can look like a member. What it keeps
// is a short key, a short number and a name that may turn out to be the model's; everything else passes at once. Of a document that
// is no object, or broken, nothing is changed or lost.
type scanner struct {
	kind     kind
	from     string // the name to replace; unused unless mapping
	to       []byte // the JSON string to put in its place
	mapping  bool   // bytes are collected in out
	out      []byte
	usage    Usage
	complete int // documents that ended with their closing brace

	off     bool // this document is no object
	depth   int
	nodes   [maxDepth]node // of the open containers
	wantKey bool
	field   field // of the member whose value comes

	inString, escaped bool
	capture           capture
	key               []byte
	held              []byte // a model's name so far, with its opening quote
	number            []byte
}

const (
	maxDepth   = 4 // details in usage in message in the document
	keyLimit   = 48
	digitLimit = 20
	tokenLimit = 1 << 40 // what claims to be more tokens is no count
)

// node is a container of a document.
type node uint8

const (
	other node = iota
	root
	wrapped // the message or response in an event
	usage
	details
)

// field is a member that the scanner looks at.
type field uint8

const (
	noField field = iota
	modelField
	wrapField
	usageField
	detailsField
	promptField
	completionField
	cachedField
)

type capture uint8

const (
	nothing capture = iota
	aKey
	aName
)

// reset forgets the document and lets go of what was held back.
func (s *scanner) reset() {
	s.release()
	s.off, s.depth, s.wantKey, s.field = false, 0, false, noField
	s.inString, s.escaped, s.capture = false, false, nothing
	s.number = s.number[:0]
}

// release lets go of a name that is none, or that never ended.
func (s *scanner) release() {
	if s.capture == aName {
		s.capture = nothing
		s.out = append(s.out, s.held...)
	}
	s.held = s.held[:0]
}

func (s *scanner) emit(p ...byte) {
	if s.mapping {
		s.out = append(s.out, p...)
	}
}

func (s *scanner) feed(p []byte) {
	for len(p) > 0 {
		switch {
		case s.off:
			s.emit(p...)
			return
		case s.inString:
			p = s.text(p)
		default:
			s.structure(p[0])
			p = p[1:]
		}
	}
}

// text takes bytes of a string up to its end and returns the rest.
func (s *scanner) text(p []byte) []byte {
	n := 0
	for n < len(p) && s.inString {
		switch c := p[n]; {
		case s.escaped:
			s.escaped = false
		case c == '\\':
			s.escaped = true
		case c == '"':
			s.inString = false
		}
		n++
	}
	piece := p[:n]
	switch s.capture {
	case aKey:
		if room := keyLimit + 2 - len(s.key); room > 0 {
			s.key = append(s.key, piece[:min(n, room)]...)
		}
		s.emit(piece...)
		if !s.inString {
			s.keyEnd()
		}
	case aName:
		s.held = append(s.held, piece...)
		switch {
		case !s.inString:
			s.nameEnd()
		case len(s.held) > 6*len(s.from)+2: // too long for the name even if every byte of it is escaped
			s.release()
		}
	default:
		s.emit(piece...)
	}
	return p[n:]
}

func (s *scanner) keyEnd() {
	s.capture = nothing
	s.wantKey = false
	s.field = noField
	if len(s.key) <= keyLimit+1 {
		s.field = s.node().member(string(keyText(s.key[:len(s.key)-1])), s.kind)
	}
}

func (s *scanner) nameEnd() {
	if text(s.held) == s.from {
		s.capture = nothing
		s.out = append(s.out, s.to...)
	}
	s.release()
}

func (s *scanner) node() node {
	if s.depth == 0 || s.depth > maxDepth {
		return other
	}
	return s.nodes[s.depth-1]
}

// member is what the member of that name is in a container of this kind.
func (n node) member(key string, k kind) field {
	switch n {
	case root, wrapped:
		switch {
		case key == "model":
			return modelField
		case key == "usage":
			return usageField
		case n == root && (k == anthropic && key == "message" || k == responses && key == "response"):
			return wrapField
		}
	case usage:
		switch key {
		case "prompt_tokens", "input_tokens":
			return promptField
		case "completion_tokens", "output_tokens":
			return completionField
		case "cache_read_input_tokens":
			return cachedField
		case "prompt_tokens_details", "input_tokens_details":
			return detailsField
		}
	case details:
		if key == "cached_tokens" {
			return cachedField
		}
	}
	return noField
}

// structure takes a byte outside of strings.
func (s *scanner) structure(c byte) {
	switch c {
	case ' ', '\t', '\r', '\n':
		s.numberEnd()
	case '"':
		s.inString = true
		switch {
		case s.depth == 0:
			s.off, s.inString = true, false
		case s.node() != other && s.wantKey:
			s.capture, s.key = aKey, s.key[:0]
		case s.field == modelField && s.mapping:
			s.capture, s.held = aName, append(s.held[:0], c)
			return
		}
	case '{', '[':
		s.open(c)
	case '}', ']':
		s.numberEnd()
		s.shut()
	case ',':
		s.numberEnd()
		s.wantKey, s.field = true, noField
	case ':':
	default:
		switch {
		case s.depth == 0:
			s.off = true
		case s.field >= promptField && len(s.number) <= digitLimit:
			s.number = append(s.number, c)
		}
	}
	s.emit(c)
}

func (s *scanner) open(c byte) {
	n := other
	switch {
	case c == '[':
	case s.depth == 0:
		n = root
	case s.field == wrapField:
		n = wrapped
	case s.field == usageField:
		n = usage
	case s.field == detailsField:
		n = details
	}
	if s.depth < maxDepth {
		s.nodes[s.depth] = n
	}
	s.depth++
	s.wantKey, s.field = true, noField
}

func (s *scanner) shut() {
	if s.depth == 0 {
		s.off = true
		return
	}
	if s.depth == 1 && s.nodes[0] == root {
		s.complete++
	}
	s.depth--
	s.wantKey, s.field = false, noField
}

// numberEnd takes a count. A later one overwrites an earlier one: servers that report usage with every chunk report running totals.
func (s *scanner) numberEnd() {
	if len(s.number) == 0 {
		return
	}
	n, err := strconv.ParseInt(string(s.number), 10, 64)
	s.number = s.number[:0]
	if err != nil || n < 0 || n > tokenLimit {
		return
	}
	switch s.field {
	case promptField:
		s.usage.Prompt = n
	case completionField:
		s.usage.Completion = n
	case cachedField:
		s.usage.Cached = n
	default:
		return
	}
	s.usage.Known = true
}
