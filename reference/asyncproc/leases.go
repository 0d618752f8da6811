package asyncproc

import (
	"context"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/redisq"
)

// leases are the deliveries that the process holds: from the pull until the broker has taken their end.
type leases struct {
	mu   sync.Mutex
	held map[async.MessageID]*carried
}

func (l *leases) add(cs []*carried) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range cs {
		l.held[c.id] = c
	}
}

func (l *leases) remove(id async.MessageID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, id)
}

func (l *leases) has(id async.MessageID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[id] != nil
}

func (l *leases) list() []*carried {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*carried, 0, len(l.held))
	for _, c := range l.held {
		out = append(out, c)
	}
	return out
}

// The bounds of the time between two heartbeats (spec/async-processor.md §1.2).
const (
	heartbeatMin = time.Second
	heartbeatMax = 30 * time.Second
)

func heartbeat(lease time.Duration) time.Duration {
	return min(max(lease/3, min(heartbeatMin, lease/2)), heartbeatMax)
}

// every calls f at once if told so, and then with pauses of d until ctx ends.
func every(ctx context.Context, d time.Duration, atOnce bool, f func()) {
	if atOnce {
		f()
	}
	for clock.Sleep(ctx, d) {
		f()
	}
}

// renew keeps the leases alive. One that is lost cannot be won back; the broker will refuse the message's end.
func (d *driver) renew(ctx context.Context, l leaser) {
	all := d.leases.list()
	ds := make([]redisq.Delivery, len(all))
	for i, c := range all {
		ds[i] = c.delivery
	}
	if len(ds) == 0 {
		return
	}
	lost, err := l.Renew(ctx, ds)
	if err != nil {
		d.log.Warn("leases", "error", err)
	}
	for _, i := range lost {
		if !d.leases.has(all[i].id) {
			continue // it ended meanwhile
		}
		d.log.Warn("lease lost", "request", all[i].envelope.Request.ID, "queue", ds[i].Queue)
	}
}

// watchMarks ends messages whose producer has withdrawn them since they were pulled (AP-RES-05).
func (d *driver) watchMarks(ctx context.Context) {
	all := d.leases.list()
	var ids, tokens []string
	var of []async.MessageID
	for _, c := range all {
		if c.envelope.Internal.RequestToken != "" {
			ids, tokens, of = append(ids, c.envelope.Request.ID), append(tokens, c.envelope.Internal.RequestToken), append(of, c.id)
		}
	}
	if len(ids) == 0 {
		return
	}
	marks, err := d.marked(ctx, ids, tokens)
	if err != nil {
		d.log.Warn("cancel marks", "error", err)
		return
	}
	for i, cancelled := range marks {
		if cancelled {
			d.post(event{ev: async.Event{Kind: async.Cancel, ID: of[i]}})
		}
	}
}

// home is where a retry belongs: the queue that its envelope names, or the first one, with the deadline as score.
func home(first string) redisq.Home {
	return func(member string) (string, float64, bool) {
		e, err := async.Parse([]byte(member))
		if err != nil && e.Request.ID == "" {
			return "", 0, false
		}
		queue := e.Internal.RequestQueueName
		if queue == "" {
			queue = first
		}
		return queue, float64(e.Request.Deadline), queue != ""
	}
}
