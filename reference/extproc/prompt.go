package extproc

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// hasContent tells whether the required field of a valid document is there. Messages must be a non-empty list of objects.
func hasContent(raw []byte, field string) bool {
	if len(raw) == 0 || string(raw) == "null" {
		return false
	}
	if field != "messages" {
		return true
	}
	n, objects := 0, true
	elements(raw, func(value []byte) {
		n++
		objects = objects && (value[0] == '{' || string(value) == "null") // what parsers that decode into a map accept
	})
	return n > 0 && objects
}

// measure estimates the tokens of a prompt, four bytes of text each, token ids one each, and gives its pieces. raw is a value of a
// valid document; the pieces are parts of it where they need no decoding.
func measure(raw []byte) (tokens int64, pieces [][]byte) {
	if ids := tokenIDs(raw); len(ids) > 0 {
		return int64(len(ids)), [][]byte{packed(ids)}
	}
	var m meter
	m.add(raw)
	return (m.bytes+3)/4 + m.ids, m.pieces
}

// tokenIDs reads one list of ids, without a piece for each; nil for anything else.
func tokenIDs(raw []byte) []uint32 {
	if i := skipSpace(raw, 1); raw[0] != '[' || i >= len(raw) || raw[i] < '0' || raw[i] > '9' {
		return nil // most prompts: nothing is decoded in vain
	}
	var ids []uint32
	if json.Unmarshal(raw, &ids) != nil {
		return nil
	}
	return ids
}

// packed writes a token id as four bytes, so that a block holds as many ids as it is estimated to hold tokens of text.
func packed(ids []uint32) []byte {
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return b
}

type meter struct {
	bytes, ids int64
	pieces     [][]byte
}

// add takes a value of a valid document: strings and numbers wherever lists hold them, of objects the three members that make a prompt,
// in this order.
func (m *meter) add(raw []byte) {
	if len(raw) == 0 {
		return
	}
	switch c := raw[0]; {
	case c == '"':
		s := unquoted(raw)
		m.bytes += int64(len(s))
		m.pieces = append(m.pieces, s)
	case c == '-' || '0' <= c && c <= '9':
		m.ids++
		v, _ := strconv.ParseFloat(string(raw), 64)
		m.pieces = append(m.pieces, packed([]uint32{uint32(int64(v))}))
	case c == '[':
		elements(raw, m.add)
	case c == '{':
		var role, content, part []byte
		members(raw, func(key []byte, at span) {
			switch string(key) {
			case "role":
				role = raw[at.from:at.to]
			case "content":
				content = raw[at.from:at.to]
			case "text":
				part = raw[at.from:at.to]
			}
		})
		m.add(role)
		m.add(content)
		m.add(part)
	}
}

// unquoted is the value of a JSON string, a part of raw if it has no escapes; nil of anything else.
func unquoted(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	if in := raw[1 : len(raw)-1]; bytes.IndexByte(in, '\\') < 0 && utf8.Valid(in) {
		return in
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	return []byte(s)
}
