// Package embedded has a server of the Redis protocol, for the first minute and for tests.
package embedded

import (
	"context"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/llm-weir/weir/harness/clock"
)

// The library can count lifetimes at each command, but then goes through every key each time, in order: with a thousand requests waiting, a
// command takes a hundred times as long as without. Lifetimes here are counted in steps instead. One step may take at most a twentieth
// of the time.
const (
	step  = 10 * time.Millisecond
	share = 20
)

// Broker is a broker in this process. Its keys expire as those of a real one do, a step
// early or late: 10 ms, and more with 100,000 keys or on a machine that has no time for it.
type Broker struct {
	*miniredis.Miniredis
	stop  context.CancelFunc
	ended chan struct{}
}

// Start starts one at host:port; port 0 takes a free one.
func Start(addr string) (*Broker, error) {
	b := &Broker{Miniredis: miniredis.NewMiniRedis(), ended: make(chan struct{})}
	if err := b.StartAddr(addr); err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, b.stop = context.WithCancel(context.Background())
	go b.age(ctx)
	return b, nil
}

func (b *Broker) age(ctx context.Context) {
	defer close(b.ended)
	c := clock.NewReal()
	last, wait := c.Now(), step
	for clock.Sleep(ctx, wait) {
		now := c.Now()
		b.FastForward(now - last)
		last = now
		wait = max(step, share*(c.Now()-now))
	}
}

// Close ends it, and everything in it.
func (b *Broker) Close() {
	b.stop()
	<-b.ended
	b.Miniredis.Close()
}
