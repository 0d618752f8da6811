package openai

import (
	"context"
	"io"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

// slowBody is a request body whose last byte comes late.
type slowBody struct {
	ctx   context.Context
	rest  []byte
	delay time.Duration
}

// Read implements io.Reader.
func (b *slowBody) Read(p []byte) (int, error) {
	switch {
	case len(b.rest) == 0:
		return 0, io.EOF
	case len(b.rest) == 1:
		if !clock.Sleep(b.ctx, b.delay) {
			return 0, context.Cause(b.ctx)
		}
	}
	n := copy(p, b.rest[:max(1, len(b.rest)-1)])
	b.rest = b.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *slowBody) Close() error { return nil }
