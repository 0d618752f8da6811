package async

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Config is everything the machine can be told at start. Zero values mean what is said beside them; asyncconfig fills in the
// documented defaults, so that none hides in here.
type Config struct {
	// EpochUnix is the wall time of offset 0 in Unix nanoseconds; deadlines come as Unix seconds.
	EpochUnix int64
	// Seed drives the jitter of retries and the choice of random-robin.
	Seed  uint64
	Pools []PoolConfig
	Merge MergeConfig
	// Transforms may rewrite bodies; the first that handles a message wins.
	Transforms []Transform
	// Sources are what gates may ask; gates name them by index.
	Sources []Source
	// RequestTimeout bounds one attempt (AP-CLI-09); 0: only the deadline does.
	RequestTimeout time.Duration
	// GateWait bounds the time a worker is parked at a pool's gate, after which the message is given back; 0: only the deadline does
	// (AP-POOL-10).
	GateWait time.Duration
	// RetryTransport retries attempts that ended without an HTTP answer; otherwise they are final (AP-RETRY-09).
	RetryTransport bool
}

// Source is one thing that gates can read.
type Source struct {
	// TTL is how long an answer, or the lack of one, is used again; 0: each evaluation asks anew (AP-CLI-08).
	TTL time.Duration
}

// PoolConfig is one worker pool.
type PoolConfig struct {
	Name    string
	Workers int
	Gate    *Gate // nil: open
}

// QueueConfig is one queue of the broker.
type QueueConfig struct {
	ID        string // queue_id
	Name      string // the broker's name
	Pool      string
	BaseURL   string // scheme, host and perhaps a path
	Path      string // joined to it unless a message names its own
	Objective string // "": none
	Labels    map[string]string
	Gate      *Gate // nil: open
	// Push: messages come by themselves and the queue is never polled. With Batch and Interval its gate's budget is turned into a Flow
	// at every Interval; without, the gate is asked about single messages only.
	Push bool
	// Batch is what one poll may take at a budget of 1, Interval the time between polls (AP-CFG-06).
	Batch    int
	Interval time.Duration
	// Eager polls again at once when a poll took all it was allowed, so that Batch/Interval is no ceiling.
	Eager bool
	// Ahead bounds the messages that are pulled beyond the free workers. More of it costs order (a later message with an earlier
	// deadline waits behind) and, without leases, is lost with the process; less of it starves workers between polls.
	Ahead int
}

// MergeKind is the closed set of merge policies.
type MergeKind uint8

// The merge policies.
const (
	RandomRobin  MergeKind = iota // uniformly among the queues that have a message ready
	TierPriority                  // six strict lanes, inside a lane the queues take turns
)

// MergeConfig is the merge policy of all pools (AP-MERGE). Header names are as configured; "" stamps nothing.
type MergeConfig struct {
	Kind              MergeKind
	FairnessHeader    string
	FairnessAttribute string // metadata key of the tenant
	PriorityHeader    string // TierPriority: the lane's number
	ObjectiveHeader   string // TierPriority: the lane's objective
	TierLabel         string // TierPriority: label key of the tier
	LaneObjectives    [Lanes]string
}

// Validate says everything that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errConfig}, args...)...))
		}
	}
	check(len(c.Pools) > 0, "at least one pool is needed")
	check(c.RequestTimeout >= 0, "RequestTimeout must not be negative, got %v", c.RequestTimeout)
	check(c.GateWait >= 0, "GateWait must not be negative, got %v", c.GateWait)
	check(c.Merge.Kind <= TierPriority, "unknown merge policy %d", c.Merge.Kind)
	seen := map[string]bool{}
	for _, p := range c.Pools {
		check(!seen[p.Name], "duplicate pool %q", p.Name)
		seen[p.Name] = true
		check(p.Workers > 0, "pool %q: workers must be positive, got %d", p.Name, p.Workers)
		p.Gate.check(fmt.Sprintf("pool %q", p.Name), len(c.Sources), check)
	}
	for i, s := range c.Sources {
		check(s.TTL >= 0, "source %d: TTL must not be negative, got %v", i, s.TTL)
	}
	return errors.Join(errs...)
}

// Check says everything that is wrong with a queue beside this configuration; a machine takes only queues that pass.
func (c Config) Check(q QueueConfig) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: queue %q: "+format, append([]any{errConfig, q.Name}, args...)...))
		}
	}
	known := false
	for _, p := range c.Pools {
		known = known || p.Name == q.Pool
	}
	check(known, "unknown pool %q", q.Pool)
	check(q.Push || q.Batch > 0, "Batch must be positive, got %d", q.Batch)
	check(q.Push || q.Interval > 0, "Interval must be positive, got %v", q.Interval)
	check(q.Push || q.Ahead > 0, "Ahead must be positive, got %d", q.Ahead)
	_, err := Target(q.BaseURL, q.Path)
	check(err == nil, "%v", err)
	q.Gate.check("gate", len(c.Sources), check)
	return errors.Join(errs...)
}

type checker = func(ok bool, format string, args ...any)

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
