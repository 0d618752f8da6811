package asyncconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// kind is the JSON type of a node.
type kind string

const (
	kindObject kind = "an object"
	kindArray  kind = "an array"
	kindString kind = "a string"
	kindNumber kind = "a number"
	kindBool   kind = "a boolean"
	kindNull   kind = "null"
)

// node is a JSON value that knows its line, which encoding/json forgets.
type node struct {
	kind   kind
	line   int
	text   string // scalars
	fields []field
	items  []*node
}

type field struct {
	name  string
	line  int
	value *node
}

// parseJSON reads one document. With line > 0 every node has that line: the document is a text inside another one.
func parseJSON(doc []byte, line int) (*node, error) {
	p := &parser{dec: json.NewDecoder(bytes.NewReader(doc)), doc: doc, fixed: line}
	p.dec.UseNumber()
	n, err := p.value()
	if err == nil {
		if _, err = p.dec.Token(); errors.Is(err, io.EOF) {
			return n, nil
		}
		err = errors.New("there is more after the end of the document")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the document ends too early")
	}
	return nil, fmt.Errorf("%d: %w", p.line(), err)
}

type parser struct {
	dec   *json.Decoder
	doc   []byte
	fixed int
}

func (p *parser) line() int {
	if p.fixed > 0 {
		return p.fixed
	}
	return 1 + bytes.Count(p.doc[:min(int(p.dec.InputOffset()), len(p.doc))], []byte("\n"))
}

func (p *parser) value() (*node, error) {
	t, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	n := &node{line: p.line()}
	switch v := t.(type) {
	case json.Delim:
		return n, p.container(n, v)
	case string:
		n.kind, n.text = kindString, v
	case json.Number:
		n.kind, n.text = kindNumber, v.String()
	case bool:
		n.kind, n.text = kindBool, fmt.Sprint(v)
	case nil:
		n.kind = kindNull
	}
	return n, nil
}

func (p *parser) container(n *node, open json.Delim) error {
	n.kind = kindArray
	if open == '{' {
		n.kind = kindObject
	}
	for p.dec.More() {
		f := field{}
		if n.kind == kindObject {
			t, err := p.dec.Token()
			if err != nil {
				return err
			}
			f.name, _ = t.(string)
			f.line = p.line()
		}
		v, err := p.value()
		if err != nil {
			return err
		}
		if f.value = v; n.kind == kindObject {
			n.fields = append(n.fields, f)
		} else {
			n.items = append(n.items, v)
		}
	}
	_, err := p.dec.Token()
	return err
}
