// Package asyncconfig turns the processor's flags, environment and files into one configuration: strictly, and with all errors at once.
//
//	older flags --translated--+
//	                          v
//	flags, REDIS_URL --> transport document --nodes--> queues, gates, sources --> Config
//	                     pool file, merge file ----------^      |
//	                                                            +--> errors: file:line, field, how to fix
//
// Names and defaults are those of the guide (AP-CFG, AP-CLI); what a start must refuse is spec/async-processor.md §1.6.
package asyncconfig

import (
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/llm-weir/weir/reference/async"
)

// Transport is the closed set of message queues.
type Transport string

// The transports.
const (
	RedisPubSub    Transport = "redis-pubsub"
	RedisSortedSet Transport = "redis-sortedset"
	GCPPubSub      Transport = "gcp-pubsub"
)

// Durability is what a hard kill of the process may cost.
type Durability string

// The durabilities of the sorted-set transport.
const (
	// AtLeastOnce keeps a pulled message in the broker under a lease until its one result is published.
	AtLeastOnce Durability = "at-least-once"
	// AtMostOnce takes a message out of the broker when it is pulled, as the guide's processor does: a kill loses it.
	AtMostOnce Durability = "at-most-once"
)

// Config is a loaded configuration.
type Config struct {
	Flags      Flags
	Transport  Transport
	Pools      []async.PoolConfig
	Merge      async.MergeConfig
	Transforms []async.Transform
	Queues     []Queue
	Redis      Redis
	PubSub     PubSub
	// Sources are what the gates read; their indexes are those in the gates. A reload only appends.
	Sources []Source
	// Tracing: spans are exported, to where the OTEL_* variables say (AP-OTEL-01).
	Tracing bool
	// Warnings do not keep the processor from starting, Info is to be logged once.
	Warnings, Info []string
}

// Redis is the part of the transport document that all queues share.
type Redis struct {
	URL             string
	RetryQueue      string
	ResultQueue     string
	Tracing         bool // a span for each command
	PollInterval    time.Duration
	Batch           int
	ClaimLease      time.Duration
	ReclaimInterval time.Duration
}

// PubSub is the part of the transport document that all topics share.
type PubSub struct {
	Project     string
	ResultTopic string
}

// Queue is one entry of queues, or of topics.
type Queue struct {
	async.QueueConfig
	ResultQueue string        // "": Redis.ResultQueue, unless the message names its own
	ResultTTL   time.Duration // 0: none
}

// Loader loads, and loads again, the configuration of one process.
type Loader struct {
	reader
	flags      Flags
	env        func(string) string
	read       func(string) ([]byte, error)
	index      map[Source]async.SourceID
	sources    []Source
	info       []string
	pools      []async.PoolConfig
	merge      async.MergeConfig
	transforms []async.Transform
	former     *Config
}

// NewLoader makes a loader; env and read are os.Getenv and os.ReadFile unless given.
func NewLoader(f Flags, env func(string) string, read func(string) ([]byte, error)) *Loader {
	if env == nil {
		env = os.Getenv
	}
	if read == nil {
		read = os.ReadFile
	}
	return &Loader{flags: f, env: env, read: read, index: map[Source]async.SourceID{}, reader: reader{lenient: f.Lenient}}
}

// Load reads everything. All errors are reported, joined, one a line.
func (l *Loader) Load() (Config, error) {
	doc := l.document()
	l.checkFlags()
	l.pools = l.poolFile()
	l.merge = l.mergeFile()
	l.transforms = l.transformFile()
	c := Config{}
	if doc.ok {
		c = l.transport(doc, true)
	}
	c.Tracing = l.env("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
	c.Flags, c.Pools, c.Merge, c.Transforms, c.Sources, c.Warnings, c.Info = l.flags, l.pools, l.merge, l.transforms, l.sources, l.warn, l.info
	if err := l.err(); err != nil {
		return Config{Warnings: l.warn}, err
	}
	l.former = &c
	return c, nil
}

// Reload reads the transport file again. Only queues may differ; everything else wants a restart (AP-RELOAD-04). changed is false if
// nothing differs; after an error the former configuration stays the one to compare with.
func (l *Loader) Reload() (c Config, changed bool, err error) {
	l.errs, l.warn, l.info = nil, nil, nil
	doc := l.document()
	if doc.ok {
		c = l.transport(doc, false)
	}
	if err := l.err(); err != nil {
		return Config{}, false, err
	}
	if c.Transport != l.former.Transport || c.Redis != l.former.Redis || c.PubSub != l.former.PubSub {
		return Config{}, false, fmt.Errorf("%s: only queues may change while the processor runs; restart it for the other fields", doc.file)
	}
	c.Flags, c.Pools, c.Merge, c.Transforms, c.Sources, c.Warnings, c.Info = l.flags, l.pools, l.merge, l.transforms, l.sources, l.warn, l.info
	changed = !reflect.DeepEqual(c.Queues, l.former.Queues)
	l.former = &c
	return c, changed, nil
}
