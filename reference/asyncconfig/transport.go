package asyncconfig

import (
	"fmt"
	"net/url"
	"time"

	"github.com/llm-weir/weir/reference/async"
)

// document is the transport document, wherever it came from.
type document struct {
	ok        bool
	file      string // named in errors
	transport string
	root      *node
}

// document finds the transport document: inline, from a file, or translated from the older flags (AP-CLI-03, AP-CLI-14, AP-CLI-15).
func (l *Loader) document() document {
	f := &l.flags
	older := f.Older.used()
	if f.Transport == "" && f.TransportConfig == "" && f.TransportConfigFile == "" && len(older) > 0 {
		return l.translate(older)
	}
	for _, name := range older {
		if name != "request-merge-policy-config" {
			l.warnf("--%s: deprecated, and ignored beside --transport and --transport-config", name)
		}
	}
	d := document{transport: f.Transport}
	if d.transport == "" {
		d.transport = string(RedisPubSub)
	}
	if (f.TransportConfig == "") == (f.TransportConfigFile == "") {
		l.failf("exactly one of --transport-config and --transport-config-file is required")
		return d
	}
	text := []byte(f.TransportConfig)
	d.file = "--transport-config"
	if f.TransportConfigFile != "" {
		d.file = f.TransportConfigFile
		var err error
		if text, err = l.read(f.TransportConfigFile); err != nil {
			l.failf("--transport-config-file: %w", err)
			return d
		}
	}
	return l.parse(d, text)
}

func (l *Loader) parse(d document, text []byte) document {
	root, err := parseJSON(text, 0)
	if err != nil {
		l.failf("%s:%w", d.file, err)
		return d
	}
	d.root, d.ok = root, true
	return d
}

// defaults of the transport document (AP-CFG-05, AP-CFG-06).
const (
	defaultRetryQueue    = "retry-sortedset"
	defaultResultList    = "result-list"
	defaultResultChannel = "result-queue"
	defaultPollMillis    = 1000
	defaultBatch         = 10
	defaultPath          = "/v1/completions"
	defaultPool          = "default"
	defaultLease         = 300   // s
	defaultReclaim       = 15000 // ms
)

// topicInterval is how often a topic's budget is read (spec/async-processor.md §1.5).
const topicInterval = 10 * time.Second

// tierAhead is how far the tier-priority policy reads ahead of the workers: it can only order what it has (spec/async-processor.md §5).
const tierAhead = 1000

// atMostOnceAhead is small because without leases what is pulled ahead is lost with the process.
const atMostOnceAhead = 2

// transport reads the document. needQueues: an empty list is an error, as it is everywhere but in a reload (AP-CFG-07, AP-RELOAD-03).
func (l *Loader) transport(d document, needQueues bool) Config {
	c := Config{Transport: Transport(d.transport)}
	known := map[Transport][]string{
		RedisPubSub: {"url", "retry_queue_name", "result_queue_name", "enable_tracing", "queues"},
		RedisSortedSet: {"url", "retry_queue_name", "result_queue_name", "poll_interval_ms", "batch_size", "enable_tracing", "queues",
			"claim_lease_ttl_seconds", "claim_reclaim_interval_ms"},
		GCPPubSub: {"project_id", "result_topic_id", "batch_size", "topics"},
	}
	names, ok := known[c.Transport]
	switch {
	case !ok:
		l.failf("--transport: expected redis-pubsub, redis-sortedset or gcp-pubsub, got %q", d.transport)
		return c
	}
	o := l.object(d.file, "", d.root, names...)
	list, what := "queues", "queue"
	var shared async.QueueConfig
	switch c.Transport {
	case RedisSortedSet:
		c.Redis = l.redis(o, c.Transport)
		shared = async.QueueConfig{Eager: l.flags.Eager, Interval: c.Redis.PollInterval, Batch: c.Redis.Batch}
	case RedisPubSub:
		c.Redis = l.redis(o, c.Transport)
		shared.Push = true
	case GCPPubSub:
		list, what = "topics", "topic"
		c.PubSub = PubSub{Project: o.required("project_id"), ResultTopic: o.required("result_topic_id")}
		shared = async.QueueConfig{Push: true, Interval: topicInterval, Batch: o.natural("batch_size", defaultBatch, 1)}
	}
	items := o.list(list)
	if len(items) == 0 && needQueues {
		o.fail(list, "at least one %s is required", what)
	}
	seen := map[string]int{}
	for i, n := range items {
		path := fmt.Sprintf("%s[%d]", list, i)
		q := l.queue(d.file, path, n, c.Transport, shared)
		for _, key := range []string{"id " + q.ID, "name " + q.Name} {
			if line, again := seen[key]; again && q.Name != "" {
				l.failf("%s:%d: %s: duplicate %s %s, also in line %d", d.file, n.line, path, what, key, line)
			}
			seen[key] = n.line
		}
		c.Queues = append(c.Queues, q)
	}
	return c
}

func (l *Loader) redis(o object, t Transport) Redis {
	r := Redis{URL: o.str("url", ""), RetryQueue: o.str("retry_queue_name", defaultRetryQueue), ResultQueue: o.str("result_queue_name", defaultResultChannel),
		PollInterval:    time.Duration(o.natural("poll_interval_ms", defaultPollMillis, 1)) * time.Millisecond,
		Tracing:         o.boolean("enable_tracing", false),
		Batch:           o.natural("batch_size", defaultBatch, 1),
		ClaimLease:      time.Duration(o.natural("claim_lease_ttl_seconds", defaultLease, 1)) * time.Second,
		ReclaimInterval: time.Duration(o.natural("claim_reclaim_interval_ms", defaultReclaim, 1)) * time.Millisecond}
	if t == RedisSortedSet {
		r.ResultQueue = o.str("result_queue_name", defaultResultList)
	}
	if r.URL == "" {
		r.URL = l.env("REDIS_URL")
	}
	u, err := url.Parse(r.URL)
	switch {
	case r.URL == "":
		o.fail("url", "is required, here or in REDIS_URL")
	case err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") || u.Host == "":
		o.fail("url", "expected redis://[user:password@]host:port/db, or rediss:// for TLS") // the value may hold a password
	}
	return r
}

// queue reads one entry (AP-CFG-07 to AP-CFG-15).
func (l *Loader) queue(file, path string, n *node, t Transport, q async.QueueConfig) Queue {
	name := "queue_name"
	if t == GCPPubSub {
		name = "subscriber_id"
	}
	names := []string{name, "igw_base_url", "request_path_url", "inference_objective", "worker_pool_id", "labels", "gate_type", "gate_params"}
	if t == RedisSortedSet {
		names = append(names, "id", "result_queue_name", "result_ttl_seconds")
	}
	o := l.object(file, path, n, names...)
	if n.kind != kindObject {
		return Queue{}
	}
	q.Name, q.BaseURL = o.required(name), o.required("igw_base_url")
	q.ID = o.str("id", q.Name)
	q.Path = o.str("request_path_url", defaultPath)
	q.Objective = o.str("inference_objective", "")
	q.Pool = o.str("worker_pool_id", defaultPool)
	q.Labels = o.stringMap("labels")
	if q.BaseURL != "" {
		if _, err := async.Target(q.BaseURL, q.Path); err != nil {
			o.fail("igw_base_url", "%v", err)
		}
	}
	if !l.hasPool(q.Pool) {
		o.fail("worker_pool_id", "there is no worker pool %q; --pool-config-file defines them", q.Pool)
	}
	if t != RedisPubSub {
		q.Gate = l.gateOf(o)
	} else if o.has("gate_type") {
		l.warnf("%s:%d: %s.gate_type: ignored, the redis-pubsub transport has no queue gates", file, o.line("gate_type"), path)
	}
	q.Ahead = q.Batch
	switch {
	case l.merge.Kind == async.TierPriority:
		q.Ahead = tierAhead
	case l.flags.Durability == string(AtMostOnce):
		q.Ahead = atMostOnceAhead
	}
	return Queue{QueueConfig: q, ResultQueue: o.str("result_queue_name", ""),
		ResultTTL: time.Duration(o.natural("result_ttl_seconds", 0, 0)) * time.Second}
}

func (l *Loader) hasPool(name string) bool {
	for _, p := range l.pools {
		if p.Name == name {
			return true
		}
	}
	return false
}
