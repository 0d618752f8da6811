package asyncproc

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/reference/redisq"
)

// wakes listens for producers that say they have submitted something, so that an eager processor need not poll fast to be quick. A
// word that is missed costs no more than the wait for the next poll.
type wakes struct {
	sub  *redis.PubSub
	wake func(queue string)
	mu   sync.Mutex
	now  map[string]bool
}

func newWakes(c *redis.Client, wake func(string)) *wakes {
	return &wakes{sub: c.Subscribe(context.Background()), wake: wake, now: map[string]bool{}}
}

// set makes the queues listened for exactly these. Without a connection the client subscribes when it has one again.
func (w *wakes) set(queues []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := map[string]bool{}
	for _, q := range queues {
		if want[q] = true; !w.now[q] {
			_ = w.sub.Subscribe(context.Background(), redisq.WakeChannel(q)) // repeated by the client on every connection
		}
	}
	for q := range w.now {
		if !want[q] {
			_ = w.sub.Unsubscribe(context.Background(), redisq.WakeChannel(q)) // nobody is listening then, which is what is wanted
		}
	}
	w.now = want
}

// run listens until ctx ends.
func (w *wakes) run(ctx context.Context) {
	defer func() { _ = w.sub.Close() }() // nothing can be done about it
	words := w.sub.Channel()
	for {
		select {
		case m, ok := <-words:
			if !ok {
				return
			}
			w.wake(strings.TrimSuffix(m.Channel, redisq.WakeSuffix))
		case <-ctx.Done():
			return
		}
	}
}
