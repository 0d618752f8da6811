package loadsync

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/harness/clock"
)

// reader is the state of the goroutine that receives.
type reader struct {
	link
	peers   map[string]*peer
	handles int // given out
	heard   int // as told last
}

// peer is another replica.
type peer struct {
	handle   int
	sequence uint64
	at       time.Duration // of its last report
}

// read receives, and begins again after every failure.
func (s *Syncer) read(ctx context.Context) {
	for {
		err := s.session(ctx)
		if ctx.Err() != nil {
			return
		}
		s.broke(&s.reader.link, Receive, err)
		s.prune()
		if !clock.Sleep(ctx, s.beat) {
			return
		}
	}
}

// backlog is how many messages may wait while the hashes are read; of more the last reports come with the next heart-beats.
const backlog = 256

// session receives on one connection until it fails. This replica's own heart-beats come back on it: without them it is dead, even if
// nobody has closed it.
func (s *Syncer) session(ctx context.Context) error {
	client := s.connect()
	defer func() { _ = client.Close() }()
	sub := client.Subscribe(ctx, s.prefix())
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	in, ended := make(chan any, backlog), make(chan error, 1)
	var receiving sync.WaitGroup
	defer receiving.Wait()
	defer func() { _ = sub.Close() }()
	receiving.Go(func() {
		for {
			m, err := sub.ReceiveTimeout(ctx, 3*s.beat+timeout)
			if err != nil {
				ended <- fmt.Errorf("channel %s: %w", s.prefix(), err)
				return
			}
			select {
			case in <- m:
			default:
			}
		}
	})
	for {
		select {
		case m := <-in:
			if err := s.received(ctx, client, m); err != nil {
				return err
			}
			s.prune()
		case err := <-ended:
			return err
		}
	}
}

// received handles what came on the channel.
func (s *Syncer) received(ctx context.Context, client *redis.Client, in any) error {
	switch in := in.(type) {
	case *redis.Subscription: // from here on nothing is missed; what was before is in the hashes
		if err := s.join(ctx, client); err != nil {
			return err
		}
		s.works(&s.reader.link, Receive)
	case *redis.Message:
		if m, err := decode(in.Payload); err != nil {
			s.malformed(err)
		} else {
			s.take(m, 0)
		}
	}
	return nil
}

// join reads what the others have reported last.
func (s *Syncer) join(ctx context.Context, client *redis.Client) error {
	names, err := client.SMembers(ctx, s.prefix()).Result()
	if err != nil {
		return fmt.Errorf("index %s: %w", s.prefix(), err)
	}
	if len(names) > maxReplicas {
		s.malformed(fmt.Errorf("index %s: %d replicas, at most %d are read", s.prefix(), len(names), maxReplicas))
		names = names[:maxReplicas]
	}
	hashes, lives := make([]*redis.MapStringStringCmd, len(names)), make([]*redis.DurationCmd, len(names))
	if len(names) == 0 {
		return nil
	}
	if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			hashes[i], lives[i] = p.HGetAll(ctx, s.hash(name)), p.PTTL(ctx, s.hash(name))
		}
		return nil
	}); err != nil {
		return fmt.Errorf("hashes of %s: %w", s.prefix(), err)
	}
	var gone []any
	for i, name := range names {
		fields := hashes[i].Val()
		if len(fields) == 0 {
			gone = append(gone, name)
			continue
		}
		m, err := fromFields(name, fields)
		if err != nil {
			s.malformed(err)
			continue
		}
		s.take(m, s.cfg.Limit-lives[i].Val())
	}
	if len(gone) > 0 { // one that is only late enters its name with its next report
		return client.SRem(ctx, s.prefix(), gone...).Err()
	}
	return nil
}

// take passes a report of that age on, unless it is this replica's own or there was a later one.
func (s *Syncer) take(m message, age time.Duration) {
	r := &s.reader
	if m.Replica == s.cfg.Replica {
		return
	}
	p, at := r.peers[m.Replica], s.cfg.Clock.Now()-min(max(age, 0), s.cfg.Limit) // below 0 if it is older than this run
	switch {
	case p == nil && m.Gone, p != nil && m.Sequence <= p.sequence:
		return
	case p == nil:
		r.handles++
		p = &peer{handle: r.handles, at: at}
		r.peers[m.Replica] = p
	}
	p.sequence, p.at = m.Sequence, max(p.at, at)
	s.cfg.OnReport(Report{Replica: p.handle, At: p.at, Loads: m.Loads})
	if m.Gone {
		delete(r.peers, m.Replica)
	}
}

// prune forgets replicas whose reports count no longer.
func (s *Syncer) prune() {
	r := &s.reader
	for name, p := range r.peers {
		if s.cfg.Clock.Now()-p.at > s.cfg.Limit {
			delete(r.peers, name)
		}
	}
	if s.cfg.OnReplicas != nil && len(r.peers) != r.heard {
		r.heard = len(r.peers)
		s.cfg.OnReplicas(r.heard)
	}
}

// malformed counts what somebody wrote that nobody can read; the connection is well.
func (s *Syncer) malformed(err error) {
	if s.cfg.OnError != nil {
		s.cfg.OnError(Decode, err)
	}
	s.cfg.Logger.Debug("load of other replicas: ignored", "error", err)
}
