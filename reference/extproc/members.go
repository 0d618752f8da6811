package extproc

import (
	"bytes"
	"encoding/json"
)

// span is a range of bytes of a document.
type span struct{ from, to int }

// members calls each for every member of a valid JSON object, in order, with the range of its value.
func members(doc []byte, each func(key []byte, value span)) {
	i := skipSpace(doc, 0) + 1 // behind the brace
	for {
		i = skipSpace(doc, i)
		if i >= len(doc) || doc[i] != '"' {
			return
		}
		end := skipString(doc, i)
		key := keyText(doc[i+1 : end-1])
		i = skipSpace(doc, end)
		from := skipSpace(doc, i+1) // behind the colon
		to := skipValue(doc, from)
		each(key, span{from, to})
		i = skipSpace(doc, to)
		if i >= len(doc) || doc[i] != ',' {
			return
		}
		i++
	}
}

// keyText decodes what stands between the quotes of a key; "mod\u0065l" is a key that parsers read as model.
func keyText(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return unquoted(append(append([]byte{'"'}, raw...), '"'))
}

// elements calls each for every element of a valid JSON array, in order; of no array for none.
func elements(doc []byte, each func(value []byte)) {
	if len(doc) == 0 || doc[0] != '[' {
		return
	}
	for i := 1; ; i++ { // behind the bracket, then behind each comma
		from := skipSpace(doc, i)
		if from >= len(doc) || doc[from] == ']' {
			return
		}
		i = skipValue(doc, from)
		each(doc[from:i])
		if i = skipSpace(doc, i); i >= len(doc) || doc[i] != ',' {
			return
		}
	}
}

func skipSpace(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\t' || doc[i] == '\r' || doc[i] == '\n') {
		i++
	}
	return i
}

// skipString returns the position behind the string that begins at i.
func skipString(doc []byte, i int) int {
	for i++; i < len(doc); i++ {
		switch doc[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(doc)
}

// skipValue returns the position behind the value that begins at i.
func skipValue(doc []byte, i int) int {
	depth := 0
	for i < len(doc) {
		switch doc[i] {
		case '"':
			i = skipString(doc, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i // the end of the object around a number or a literal
			}
			if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return len(doc)
}

// quoted is s as a JSON string without the escapes that only HTML needs.
func quoted(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil { // no string fails
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// withModel is the body with every top-level "model" replaced, and nothing else touched; a body without one gets one as its first
// member. A second "model" would be the first for a model server whose parser takes the first.
func withModel(body []byte, models []span, model string) []byte {
	value := quoted(model)
	out := make([]byte, 0, len(body)+len(value)+12)
	at := 0
	for _, s := range models {
		out = append(append(out, body[at:s.from]...), value...)
		at = s.to
	}
	if len(models) == 0 { // the object has members: the content that the parser asked for
		at = bytes.IndexByte(body, '{') + 1
		out = append(out, body[:at]...)
		out = append(append(append(out, `"model":`...), value...), ',')
	}
	return append(out, body[at:]...)
}
