package asyncproc

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
)

// setQueues makes the served queues those of a configuration. A queue that has not changed keeps its state; a changed one is a new one
// (AP-RELOAD-08).
func (s *Server) setQueues(c asyncconfig.Config) {
	s.queues.Lock()
	defer s.queues.Unlock()
	s.d.sources.set(c.Sources)
	for _, src := range c.Sources[min(len(s.o.Config.Sources), len(c.Sources)):] {
		s.d.await(event{ev: async.Event{Kind: async.AddSource, TTL: src.TTL}})
	}
	s.o.Config.Sources = c.Sources
	want := map[string]asyncconfig.Queue{}
	for _, q := range c.Queues {
		want[q.ID] = q
	}
	for id, now := range s.keys {
		if q, ok := want[id]; !ok || !reflect.DeepEqual(q, now.cfg) {
			s.d.await(event{ev: async.Event{Kind: async.RemoveQueue, Queue: now.key}})
			delete(s.keys, id)
			s.d.metrics.stop(labelsOf(now.cfg))
		}
	}
	for _, q := range c.Queues {
		if _, ok := s.keys[q.ID]; ok {
			continue
		}
		s.lastKey++
		s.keys[q.ID] = servedQueue{s.lastKey, q}
		s.d.metrics.start(labelsOf(q))
		own := &served{key: s.lastKey, cfg: q, labels: labelsOf(q)}
		if q.Push {
			s.byName[q.Name] = own
		}
		s.d.await(event{ev: async.Event{Kind: async.AddQueue, Queue: s.lastKey, QueueConfig: q.QueueConfig}, served: own})
	}
	if s.wakes != nil {
		s.wakes.set(s.namesLocked())
	}
}

func labelsOf(q asyncconfig.Queue) labels { return labels{q.ID, q.Name, q.Pool} }

// names are the broker's names of the served queues, in the order in which these were added.
func (s *Server) names() []string {
	s.queues.Lock()
	defer s.queues.Unlock()
	return s.namesLocked()
}

func (s *Server) namesLocked() []string {
	var out []string
	for _, q := range s.servedLocked() {
		out = append(out, q.cfg.Name)
	}
	return out
}

func (s *Server) servedLocked() []servedQueue {
	var out []servedQueue
	for _, q := range s.keys {
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b servedQueue) int { return int(a.key - b.key) })
	return out
}

// wake polls a queue that probably has new messages.
func (s *Server) wake(queue string) {
	s.queues.Lock()
	all := s.servedLocked()
	s.queues.Unlock()
	for _, q := range all {
		if q.cfg.Name == queue {
			s.d.post(event{ev: async.Event{Kind: async.Wake, Queue: q.key}})
		}
	}
}

// reload reads the queues again. What is wrong leaves the former ones running (AP-RELOAD-07).
func (s *Server) reload(context.Context) {
	c, changed, err := s.o.Loader.Reload()
	for _, w := range c.Warnings {
		s.o.Logger.Warn(w)
	}
	switch {
	case err != nil:
		s.d.metrics.reloads.WithLabelValues("error").Inc()
		s.o.Logger.Error("queues not reloaded; the former ones go on", "error", err)
		return
	case !changed:
		return
	}
	s.setQueues(c)
	s.d.metrics.reloads.WithLabelValues("success").Inc()
	s.d.metrics.reloaded.Set(float64(s.d.epoch+int64(s.o.Clock.Now())) / 1e9)
	s.o.Logger.Info("queues reloaded", "queues", len(c.Queues))
}

// backlogs shows what the broker holds, and how near its deadlines are (AP-MET-12, AP-MET-14).
func (s *Server) backlogs(ctx context.Context) {
	s.queues.Lock()
	all := s.servedLocked()
	s.queues.Unlock()
	now := time.Duration(s.d.epoch) + s.o.Clock.Now()
	for _, q := range all {
		l := labelsOf(q.cfg)
		pipe := s.redis.Pipeline()
		counts := make([]*redis.IntCmd, 0, len(proximityBuckets)+1)
		for _, b := range proximityBuckets {
			counts = append(counts, pipe.ZCount(ctx, q.cfg.Name, "-inf", strconv.FormatFloat((now+b).Seconds(), 'f', -1, 64)))
		}
		counts = append(counts, pipe.ZCard(ctx, q.cfg.Name))
		if _, err := pipe.Exec(ctx); err != nil {
			s.o.Logger.Warn("backlog", "queue", q.cfg.Name, "error", err)
			s.d.metrics.backlog.WithLabelValues(l[:]...).Set(0)
			continue
		}
		cumulative := make([]uint64, len(counts))
		for i, c := range counts {
			cumulative[i] = uint64(c.Val())
		}
		s.d.metrics.proximity.set(l, cumulative)
		s.d.metrics.backlog.WithLabelValues(l[:]...).Set(float64(counts[len(counts)-1].Val()))
	}
}
