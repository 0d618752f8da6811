package openai

import (
	"bytes"
	"errors"
)

// Bounds of one server-sent event. A chunk of an OpenAI stream is below a kilobyte; a line without end must not eat the client.
const (
	maxLine  = 1 << 20
	maxEvent = 4 << 20
)

// errSSETooLong is a line or an event beyond the bounds.
var errSSETooLong = errors.New("server-sent event is longer than the client accepts")

// sseEvent is one event. Data lies in the parser's buffer and is valid until the emit function returns.
type sseEvent struct {
	Name string // "" : message
	Data []byte // data lines joined by \n
}

// sseParser splits a byte stream into events as it comes, after WHATWG HTML section 9.2.6: lines end with LF, CRLF or CR, a blank
// line ends an event, an event cut off by the end of the stream does not count, lines starting with ':' are comments.
type sseParser struct {
	line    []byte
	name    string
	data    []byte
	hasData bool
	skipLF  bool // the last byte was a CR: a LF that follows belongs to it, even in the next read
	started bool // the first line is read: a byte order mark may no longer come
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// Feed consumes a piece of the stream and calls emit for every event that ends in it.
func (p *sseParser) Feed(piece []byte, emit func(sseEvent)) error {
	for len(piece) > 0 {
		if p.skipLF {
			p.skipLF = false
			if piece[0] == '\n' {
				piece = piece[1:]
				continue
			}
		}
		end := bytes.IndexAny(piece, "\r\n")
		if end < 0 {
			end = len(piece)
		}
		if len(p.line)+end > maxLine {
			return errSSETooLong
		}
		if end == len(piece) {
			p.line = append(p.line, piece...)
			return nil
		}
		line := piece[:end]
		if len(p.line) > 0 {
			p.line = append(p.line, line...)
			line = p.line
		}
		p.skipLF = piece[end] == '\r'
		piece = piece[end+1:]
		err := p.endLine(line, emit)
		p.line = p.line[:0]
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *sseParser) endLine(line []byte, emit func(sseEvent)) error {
	if !p.started {
		p.started = true
		line = bytes.TrimPrefix(line, byteOrderMark)
	}
	if len(line) == 0 {
		if p.hasData {
			emit(sseEvent{p.name, p.data})
		}
		p.name, p.data, p.hasData = "", p.data[:0], false
		return nil
	}
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "event":
		p.name = string(value)
	case "data":
		if len(p.data)+len(value) >= maxEvent {
			return errSSETooLong
		}
		if p.hasData {
			p.data = append(p.data, '\n')
		}
		p.data = append(p.data, value...)
		p.hasData = true
	}
	// Comments have an empty field name; id, retry and unknown fields mean nothing here.
	return nil
}
