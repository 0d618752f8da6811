package extproc

import "strings"

// tap is what a response body passes through: it reads the token usage and, after a rewrite, puts back the name of the model that the
// client asked for. It holds back at most the beginning of a name, never a chunk, and without a rewrite it returns its input.
type tap struct {
	scan   scanner
	format format
	line   lineState
	prefix int  // matched bytes of "data:" at the begin of a line
	wasCR  bool // the last byte was a carriage return: a newline behind it ends no second line
}

// format is what is known of a response's media type.
type format uint8

const (
	opaque format = iota
	document
	events
)

// lineState is where in a line of an event stream the next byte is.
type lineState uint8

const (
	lineBegin lineState = iota
	lineData            // behind "data:"
	lineOther           // another field, or a comment
)

const dataField = "data:"

// newTap makes a tap; incoming and target are equal if nothing was rewritten.
func newTap(k kind, incoming, target string) *tap {
	t := &tap{scan: scanner{kind: k}}
	if incoming != "" && incoming != target {
		t.scan.mapping, t.scan.from, t.scan.to = true, target, quoted(incoming)
	}
	return t
}

// headers tells the tap what comes. A body of another type, or a compressed one, is passed on as it is, and so is a name in the
// body of an error, which has to reach the client as the model server sent it.
func (t *tap) headers(h Headers, status int) {
	mediaType := strings.ToLower(h["content-type"])
	encoding := strings.ToLower(strings.TrimSpace(h["content-encoding"]))
	switch {
	case encoding != "" && encoding != "identity":
	case strings.Contains(mediaType, "text/event-stream"):
		t.format = events
	case strings.Contains(mediaType, "json"):
		t.format = document
	}
	if t.format == opaque || status >= 300 {
		t.scan.mapping = false
	}
}

// pass returns what is to be sent for a chunk; eos lets go of everything.
func (t *tap) pass(chunk []byte, eos bool) []byte {
	s := &t.scan
	if s.mapping {
		s.out = make([]byte, 0, len(chunk)+len(s.to)+len(s.held)) // the last chunk's may still be on its way
	}
	switch t.format {
	case document:
		s.feed(chunk)
	case events:
		t.events(chunk)
	default:
		return chunk
	}
	if eos {
		s.numberEnd()
		s.release()
	}
	if !s.mapping {
		return chunk
	}
	return s.out
}

// events takes bytes of an event stream: the lines of one event's data are one document (spec/vllm.md; WHATWG HTML §9.2).
func (t *tap) events(p []byte) {
	s := &t.scan
	for len(p) > 0 {
		c := p[0]
		if c == '\n' && t.wasCR {
			t.wasCR = false
			s.emit(c)
			p = p[1:]
			continue
		}
		t.wasCR = false
		switch {
		case c == '\n' || c == '\r':
			t.newline(c)
			p = p[1:]
		case t.line == lineBegin:
			if c != dataField[t.prefix] {
				t.line = lineOther
				continue
			}
			s.emit(c)
			p = p[1:]
			if t.prefix++; t.prefix == len(dataField) {
				t.line = lineData
				if s.off || s.depth == 0 { // a document that is still open goes on in this line
					s.reset()
				}
			}
		default:
			n := lineEnd(p)
			if t.line == lineData {
				s.feed(p[:n])
			} else {
				s.emit(p[:n]...)
			}
			p = p[n:]
		}
	}
}

func (t *tap) newline(c byte) {
	s := &t.scan
	blank := t.line == lineBegin && t.prefix == 0
	if t.line == lineData {
		s.numberEnd()
		s.release()
	}
	if blank {
		s.reset()
	}
	s.emit(c)
	t.line, t.prefix, t.wasCR = lineBegin, 0, c == '\r'
}

func lineEnd(p []byte) int {
	for i, c := range p {
		if c == '\n' || c == '\r' {
			return i
		}
	}
	return len(p)
}

// UsageOf is the token usage that an OpenAI-style answer reports, whichever way it was cut into pieces.
func UsageOf(contentType string, pieces ...[]byte) Usage {
	t := newTap(openAI, "", "")
	t.headers(Headers{"content-type": contentType}, 200)
	for _, p := range pieces {
		t.pass(p, false)
	}
	t.pass(nil, true)
	return t.scan.usage
}
