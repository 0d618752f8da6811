package asyncproc

import (
	"context"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/pubsubq"
	"github.com/llm-weir/weir/reference/redisq"
)

// receivePause is the wait after a subscription has failed.
const receivePause = 5 * writePauseLast / 2

// subscriptions receive what each topic's budget allows.
type subscriptions struct {
	broker  *pubsubq.Broker
	deliver func(redisq.Delivery)
	limits  map[string]chan int // by subscription; the last limit that was not seen yet
}

func newSubscriptions(b *pubsubq.Broker, names []string, deliver func(redisq.Delivery)) *subscriptions {
	s := &subscriptions{broker: b, deliver: deliver, limits: map[string]chan int{}}
	for _, n := range names {
		s.limits[n] = make(chan int, 1)
	}
	return s
}

// set changes the limit of a subscription; 0 stops it. One goroutine calls it.
func (s *subscriptions) set(name string, limit int) {
	c := s.limits[name]
	if c == nil {
		return
	}
	select {
	case <-c: // the former one is out of date
	default:
	}
	c <- limit
}

// run receives from one subscription until ctx ends. A new limit takes effect when what was received under the former one has ended,
// because the library cannot change it in between.
func (s *subscriptions) run(ctx context.Context, name string, warn func(error)) {
	limit := 0
	for {
		if limit == 0 {
			select {
			case limit = <-s.limits[name]:
			case <-ctx.Done():
				return
			}
			continue
		}
		receive, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- s.broker.Receive(receive, name, limit, s.deliver) }()
		select {
		case limit = <-s.limits[name]:
			stop()
			<-ended //nolint:errcheck // it was told to end
		case <-ctx.Done():
			stop()
			<-ended //nolint:errcheck // it was told to end
			return
		case err := <-ended:
			stop()
			if err != nil {
				warn(err)
			}
			if !clock.Sleep(ctx, receivePause) {
				return
			}
		}
	}
}
