package openai

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

type plainEvent struct{ name, data string }

func feed(t testing.TB, pieces ...[]byte) []plainEvent {
	var p sseParser
	var got []plainEvent
	for _, piece := range pieces {
		if err := p.Feed(piece, func(e sseEvent) { got = append(got, plainEvent{e.Name, string(e.Data)}) }); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func TestParserFollowsTheStandard(t *testing.T) {
	for _, row := range []struct {
		why, in string
		want    []plainEvent
	}{
		{"plain", "data: a\n\ndata: b\n\n", []plainEvent{{"", "a"}, {"", "b"}}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []plainEvent{{"", "a"}, {"", "b"}}},
		{"CR alone", "data: a\r\rdata: b\r\r", []plainEvent{{"", "a"}, {"", "b"}}},
		{"several data lines are joined", "data: a\ndata: b\ndata\n\n", []plainEvent{{"", "a\nb\n"}}},
		{"one blank is removed, no more", "data:  a\n\n", []plainEvent{{"", " a"}}},
		{"no blank after the colon", "data:{\"a\":1}\n\n", []plainEvent{{"", `{"a":1}`}}},
		{"a named event", "event: error\ndata: x\n\ndata: y\n\n", []plainEvent{{"error", "x"}, {"", "y"}}},
		{"comments and other fields mean nothing", ": ping\nid: 7\nretry: 5\nfoo: bar\ndata: a\n\n", []plainEvent{{"", "a"}}},
		{"an event without data is none", "event: ping\n\ndata: a\n\n", []plainEvent{{"", "a"}}},
		{"an empty data line is data", "data:\n\n", []plainEvent{{"", ""}}},
		{"an event cut off at the end does not count", "data: a\n\ndata: [DONE]\n", []plainEvent{{"", "a"}}},
		{"a byte order mark is skipped once", "\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", []plainEvent{{"", "a"}}},
		{"many blank lines", "\n\n\ndata: a\n\n\n\n", []plainEvent{{"", "a"}}},
		{"garbage", "\x00\x01<html>\n\n", nil},
	} {
		t.Run(row.why, func(t *testing.T) {
			in := []byte(row.in)
			if got := feed(t, in); !slices.Equal(got, row.want) {
				t.Errorf("whole: got %q, want %q", got, row.want)
			}
			for cut := range len(in) {
				if got := feed(t, in[:cut], in[cut:]); !slices.Equal(got, row.want) {
					t.Errorf("cut at %d: got %q, want %q", cut, got, row.want)
				}
			}
			if got := feed(t, bytewise(in)...); !slices.Equal(got, row.want) {
				t.Errorf("byte by byte: got %q, want %q", got, row.want)
			}
		})
	}
}

func bytewise(in []byte) [][]byte {
	var out [][]byte
	for i := range in {
		out = append(out, in[i:i+1])
	}
	return out
}

func TestParserBoundsLinesAndEvents(t *testing.T) {
	half := bytes.Repeat([]byte("x"), maxLine/2+1)
	var p sseParser
	err := errors.Join(p.Feed(half, nil), p.Feed(half, nil))
	if !errors.Is(err, errSSETooLong) {
		t.Errorf("an endless line: %v", err)
	}
	p = sseParser{}
	line := []byte("data: " + strings.Repeat("x", maxLine/2) + "\n")
	err = nil
	for range 2*maxEvent/maxLine + 1 {
		err = errors.Join(err, p.Feed(line, nil))
	}
	if !errors.Is(err, errSSETooLong) {
		t.Errorf("an endless event: %v", err)
	}
}

// dumbParse is the standard read literally on a whole stream.
func dumbParse(in string) []plainEvent {
	in = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(in)
	lines := strings.Split(in, "\n")
	lines[0] = strings.TrimPrefix(lines[0], "\ufeff")
	if len(lines) == 1 {
		return nil
	}
	var out []plainEvent
	var name string
	var data []string
	for _, l := range lines[:len(lines)-1] {
		if l == "" {
			if data != nil {
				out = append(out, plainEvent{name, strings.Join(data, "\n")})
			}
			name, data = "", nil
			continue
		}
		field, value, _ := strings.Cut(l, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value
		case "data":
			data = append(data, value)
		}
	}
	return out
}

func FuzzSSE(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\nevent: error\rdata: b\n\n: c\n"), uint16(3), uint16(9))
	f.Add([]byte("\xef\xbb\xbfdata: a\n\n"), uint16(1), uint16(2))
	f.Fuzz(func(t *testing.T, in []byte, a, b uint16) {
		want := dumbParse(string(in))
		i, j := int(a)%(len(in)+1), int(b)%(len(in)+1)
		i, j = min(i, j), max(i, j)
		for _, got := range [][]plainEvent{feed(t, in), feed(t, in[:i], in[i:j], in[j:]), feed(t, bytewise(in)...)} {
			if !slices.Equal(got, want) {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	})
}

func FuzzChunk(f *testing.F) {
	f.Add([]byte(`{"choices":[{"text":"a"}],"usage":{"completion_tokens":3}}`))
	f.Add([]byte(`{"error":{"message":"m"}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		if c := parseChunk(in); c.broken != "" && (c.usage > 0 && !strings.HasPrefix(c.broken, "error")) {
			t.Errorf("%q is broken and still says %+v", in, c)
		}
	})
}
