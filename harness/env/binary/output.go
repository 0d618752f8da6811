package binary

import (
	"fmt"
	"strings"
	"sync"
)

// outputEdge is how much is kept of the beginning and of the end of what a program prints, in bytes each.
const outputEdge = 64 << 10

// output keeps the first and the last of what a program prints and counts what is in between.
type output struct {
	mu    sync.Mutex
	head  []byte
	tail  []byte // a ring once it is full
	at    int    // where its oldest byte is
	total int64
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(b)
	o.total += int64(n)
	if room := outputEdge - len(o.head); room > 0 {
		room = min(room, len(b))
		o.head = append(o.head, b[:room]...)
		b = b[room:]
	}
	if len(b) > outputEdge {
		b = b[len(b)-outputEdge:]
	}
	if room := outputEdge - len(o.tail); room > 0 {
		room = min(room, len(b))
		o.tail = append(o.tail, b[:room]...)
		b = b[room:]
	}
	for len(b) > 0 {
		k := copy(o.tail[o.at:], b)
		o.at = (o.at + k) % outputEdge
		b = b[k:]
	}
	return n, nil
}

// String is what is kept, with a line that says how much is missing.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	tail := string(o.tail[o.at:]) + string(o.tail[:o.at])
	if dropped := o.total - int64(len(o.head)+len(o.tail)); dropped > 0 {
		return fmt.Sprintf("%s\n... %d bytes are not kept ...\n%s", o.head, dropped, tail)
	}
	return string(o.head) + tail
}

// last are the last lines, at most n bytes of them.
func (o *output) last(n int) string {
	text := strings.TrimSpace(o.String())
	if len(text) > n {
		text = text[len(text)-n:]
		if _, whole, ok := strings.Cut(text, "\n"); ok {
			text = whole
		}
		text = "… " + text
	}
	return text
}
