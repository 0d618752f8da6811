// Package loadsync shares what the replicas of a picker have in flight, through a Redis-compatible server.
//
//	this replica                                 Redis                                      the others
//	Changed, heart-beat --> Loads --> hash <prefix>:<replica>, kept for Limit  --on joining--> OnReport
//	                             \--> channel <prefix>  -----------------------at once-------> OnReport
//
// A report is always the whole state of a replica, so that a lost one is made good by the next, at the latest by the heart-beat. The
// channel tells the others within a round trip, where polling would cost every replica a read of all hashes every few milliseconds to be
// as fast; the hashes are for those that join later, or again. Endpoints are named by address: ids differ between replicas. Ages are
// measured on the reader's own clock, from the moment a report comes in or from what is left of a hash's time to live, so that no two
// clocks are compared.
//
// A server that cannot be reached makes no difference to anybody's requests: what the others have reported is forgotten by those who
// count it, and each replica goes on alone until the server is back.
package loadsync

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/llm-weir/weir/harness/clock"
)

// Load is what is in flight at an endpoint.
type Load struct {
	Address  string // ip:port
	Requests int
	Tokens   int64
}

// Report is what another replica has in flight; it replaces what that one has reported before.
type Report struct {
	Replica int // a handle, never used for another replica
	At      time.Duration
	Loads   []Load
}

// Config is what a Syncer needs.
type Config struct {
	Redis *redis.Options // from Parse
	Pool  string         // replicas of one pool count together
	// Replica names this one; "": a random name. Names must not be used again, not even after a restart.
	Replica string
	// Limit is how long a report counts: the time to live of a hash. The heart-beat is a tenth of it.
	Limit time.Duration
	// MinInterval is the shortest time between two reports; 0: 5 ms. It bounds what a busy picker costs the server, and is the larger part
	// of the lag with which the others know of a change.
	MinInterval time.Duration
	Clock       clock.Clock
	Logger      *slog.Logger

	// Changed says that Loads may have changed.
	Changed <-chan struct{}
	// Loads is what is in flight now, without endpoints that have nothing, in an order of its own that does not change; false: nobody
	// knows any more.
	Loads func() ([]Load, bool)
	// OnReport hears what the others have in flight.
	OnReport func(Report)
	// OnError counts what went wrong while publishing or receiving, OnReplicas how many other replicas are heard; nil: nobody does.
	OnError    func(operation string, err error)
	OnReplicas func(n int)
}

// The operations of OnError.
const (
	Publish = "publish"
	Receive = "receive"
	Decode  = "decode"
)

// Operations lists them.
func Operations() []string { return []string{Publish, Receive, Decode} }

// timeout bounds every exchange with the server.
const timeout = 500 * time.Millisecond

// Parse reads the address of a server: redis://, rediss:// (TLS) or unix://, with user, password and database number.
func Parse(address string) (*redis.Options, error) {
	o, err := redis.ParseURL(address)
	var in *url.Error // it quotes the address, and with it the password
	switch {
	case errors.As(err, &in):
		return nil, fmt.Errorf("not an address such as redis://user:password@host:6379/0: %w", in.Err)
	case err != nil:
		return nil, fmt.Errorf("not an address such as redis://user:password@host:6379/0: %w", err)
	}
	return o, nil
}

// quiet keeps the client from printing by itself: what it has to say comes as an error as well.
var quiet sync.Once

type silent struct{}

// Printf does nothing.
func (silent) Printf(context.Context, string, ...any) {}

// Syncer publishes and receives until Close.
type Syncer struct {
	cfg     Config
	options redis.Options
	beat    time.Duration
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	once    sync.Once

	writer writer
	reader reader
}

// Start begins at once; a server that is not there yet is tried again.
func Start(cfg Config) *Syncer {
	quiet.Do(func() { redis.SetLogger(silent{}) })
	o := *cfg.Redis
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true // a failed report is not repeated but replaced by the next
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if cfg.Replica == "" {
		cfg.Replica = rand.Text()
	}
	if cfg.MinInterval == 0 {
		cfg.MinInterval = 5 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Syncer{cfg: cfg, options: o, beat: cfg.Limit / 10, cancel: cancel}
	s.reader.peers = map[string]*peer{}
	s.writer.client = s.connect()
	s.tasks.Go(func() { s.write(ctx) })
	s.tasks.Go(func() { s.read(ctx) })
	return s
}

// connect makes a client. After a failure there is a new one: a client that has often failed to reach its server tries once a second
// only, and goes on with that for a while when it is closed.
func (s *Syncer) connect() *redis.Client {
	o := s.options
	return redis.NewClient(&o)
}

// Close takes this replica's load back, so that the others need not wait for it to grow old, and ends.
func (s *Syncer) Close() error {
	var err error
	s.once.Do(func() {
		s.cancel()
		s.tasks.Wait()
		err = errors.Join(s.leave(), s.writer.client.Close())
	})
	return err
}

// Abandon ends without a word, as a replica that dies.
func (s *Syncer) Abandon() error {
	var err error
	s.once.Do(func() {
		s.cancel()
		s.tasks.Wait()
		err = s.writer.client.Close()
	})
	return err
}

// prefix is the channel, the index of the replicas, and what the hashes begin with. The braces keep them on one server of a cluster.
func (s *Syncer) prefix() string { return "weir:inflight:{" + s.cfg.Pool + "}" }

func (s *Syncer) hash(replica string) string { return s.prefix() + ":" + replica }

// link tells whether one direction works, and says so when that changes.
type link struct{ down bool }

func (s *Syncer) broke(l *link, operation string, err error) {
	if s.cfg.OnError != nil {
		s.cfg.OnError(operation, err)
	}
	if !l.down {
		l.down = true
		s.cfg.Logger.Warn("load of other replicas: the server cannot be used; what they reported counts no longer than the limit",
			"operation", operation, "limit", s.cfg.Limit, "error", err)
	}
}

func (s *Syncer) works(l *link, operation string) {
	if l.down {
		l.down = false
		s.cfg.Logger.Info("load of other replicas: the server is back", "operation", operation)
	}
}

// writer is the state of the goroutine that publishes.
type writer struct {
	link
	client   *redis.Client
	sequence uint64
	last     []Load        // as published
	checked  time.Duration // when Loads was asked last
	written  time.Duration // when a report was tried last
	begun    bool
}

// write publishes every change, at most every MinInterval, and the heart-beat.
func (s *Syncer) write(ctx context.Context) {
	w := &s.writer
	changed := false
	for {
		due := w.written + s.beat
		if changed && !w.down {
			due = min(due, w.checked+s.cfg.MinInterval)
		}
		if wait := due - s.cfg.Clock.Now(); wait > 0 && w.begun {
			timer := s.cfg.Clock.Timer(wait)
			select {
			case <-s.cfg.Changed:
				changed = true
				timer.Stop()
				continue
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		loads, known := s.cfg.Loads()
		if !known {
			return
		}
		now := s.cfg.Clock.Now()
		changed, w.checked = false, now
		if w.begun && now < w.written+s.beat && slices.Equal(loads, w.last) {
			continue
		}
		w.begun, w.written = true, now
		if err := s.publish(ctx, loads); err != nil && ctx.Err() == nil {
			s.broke(&w.link, Publish, err)
			_ = w.client.Close()
			w.client = s.connect()
		} else if err == nil {
			s.works(&w.link, Publish)
			w.last = loads
		}
	}
}

// publish writes one report.
func (s *Syncer) publish(ctx context.Context, loads []Load) error {
	s.writer.sequence++
	m := message{Replica: s.cfg.Replica, Sequence: s.writer.sequence, Loads: loads}
	key := s.hash(s.cfg.Replica)
	_, err := s.writer.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, key)
		p.HSet(ctx, key, m.fields()...)
		p.PExpire(ctx, key, s.cfg.Limit)
		p.SAdd(ctx, s.prefix(), s.cfg.Replica)
		p.PExpire(ctx, s.prefix(), indexLife*s.cfg.Limit)
		p.Publish(ctx, s.prefix(), m.encode())
		return nil
	})
	return err
}

// indexLife is how many limits the index outlives the last replica.
const indexLife = 10

// leave takes the report back.
func (s *Syncer) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s.writer.sequence++
	m := message{Replica: s.cfg.Replica, Sequence: s.writer.sequence, Gone: true}
	_, err := s.writer.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, s.hash(s.cfg.Replica))
		p.SRem(ctx, s.prefix(), s.cfg.Replica)
		p.Publish(ctx, s.prefix(), m.encode())
		return nil
	})
	return err
}
