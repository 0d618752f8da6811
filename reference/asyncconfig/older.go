package asyncconfig

import (
	"encoding/json"
	"reflect"
	"sort"
	"strings"
)

// used lists the older flags that were given, by name.
func (o OlderFlags) used() []string {
	var out []string
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			continue
		}
		f := v.Type().Field(i)
		name := f.Tag.Get("name")
		if name == "" {
			name = map[string]string{"MessageQueueImpl": "message-queue-impl", "RedisTracing": "redis-tracing"}[f.Name]
		}
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}

// translate turns the older flags into a transport document (AP-CLI-16, AP-CLI-17, AP-CLI-18).
func (l *Loader) translate(used []string) document {
	for _, name := range used {
		if name != "request-merge-policy-config" {
			l.warnf("--%s: deprecated, use --transport and --transport-config", name)
		}
	}
	o := &l.flags.Older
	d := document{file: "the older flags", transport: o.MessageQueueImpl}
	switch o.MessageQueueImpl {
	case "":
		d.transport = string(RedisPubSub)
	case string(RedisPubSub), string(RedisSortedSet), string(GCPPubSub):
	case "gcp-pubsub-gated":
		d.transport = string(GCPPubSub)
	default:
		l.failf("--message-queue-impl: expected redis-pubsub, redis-sortedset, gcp-pubsub or gcp-pubsub-gated, got %q", o.MessageQueueImpl)
		return d
	}
	l.foreign(used, d.transport)
	doc := map[string]any{}
	put := func(m map[string]any, key, value string) {
		if value != "" {
			m[key] = value
		}
	}
	put(doc, "url", o.RedisURL)
	if o.RedisTracing {
		doc["enable_tracing"] = true
	}
	entry := map[string]any{}
	list, file, prefix := o.QueuesConfig, o.QueuesConfigFile, "redis."
	switch Transport(d.transport) {
	case RedisSortedSet:
		list, file, prefix = o.SSQueuesConfig, o.SSQueuesConfigFile, "redis.ss."
		put(doc, "result_queue_name", o.SSResultQueue)
		if o.SSPollInterval != nil {
			doc["poll_interval_ms"] = *o.SSPollInterval
		}
		if o.SSBatch != nil {
			doc["batch_size"] = *o.SSBatch
		}
		put(entry, "queue_name", or(o.SSRequestQueue, "request-sortedset"))
		put(entry, "igw_base_url", o.SSBaseURL)
		put(entry, "request_path_url", o.SSRequestPath)
		put(entry, "inference_objective", o.SSObjective)
		put(entry, "gate_type", o.SSGateType)
		if o.SSGateParams != "" {
			if !json.Valid([]byte(o.SSGateParams)) {
				l.failf("--redis.ss.gate-params: is no JSON")
				return d
			}
			entry["gate_params"] = json.RawMessage(o.SSGateParams)
		}
	case RedisPubSub:
		put(doc, "retry_queue_name", o.RetryQueue)
		put(doc, "result_queue_name", o.ResultQueue)
		put(entry, "queue_name", or(o.RequestQueue, "request-queue"))
		put(entry, "igw_base_url", o.IGWBaseURL)
		put(entry, "request_path_url", o.RequestPath)
		put(entry, "inference_objective", o.Objective)
	}
	if Transport(d.transport) == GCPPubSub {
		list, file, prefix = "", o.PSTopicsFile, "pubsub."
		delete(doc, "url") // --redis.url belongs to gates at most
		put(doc, "project_id", o.PSProject)
		put(doc, "result_topic_id", o.PSResultTopic)
		if o.PSBatch != nil {
			doc["batch_size"] = *o.PSBatch
		}
		put(entry, "subscriber_id", o.PSSubscriber)
		put(entry, "igw_base_url", o.PSBaseURL)
		put(entry, "request_path_url", o.PSRequestPath)
		put(entry, "inference_objective", o.PSObjective)
	}
	queues, ok := l.olderQueues(entry, used, prefix, list, file)
	if !ok {
		return d
	}
	doc["queues"] = queues
	if Transport(d.transport) == GCPPubSub {
		delete(doc, "queues")
		doc["topics"] = queues
	}
	text, err := json.Marshal(doc)
	if err != nil {
		l.failf("%s: %w", d.file, err)
		return d
	}
	return l.parse(d, text)
}

func or(v, absent string) string {
	if v == "" {
		return absent
	}
	return v
}

// olderQueues is the list of queues: of a file, of a flag, or the single queue of the other flags, which exclude the two (AP-CLI-19).
func (l *Loader) olderQueues(entry map[string]any, used []string, prefix, list, file string) (any, bool) {
	if list == "" && file == "" {
		return []any{entry}, true
	}
	if list != "" && file != "" {
		l.failf("--%squeues-config and --%squeues-config-file: give one of them", prefix, prefix)
		return nil, false
	}
	for _, single := range []string{"igw-base-url", "request-path-url", "inference-objective", "request-queue-name", "request-subscriber-id", "gate-type", "gate-params"} {
		for _, name := range used {
			if name == prefix+single {
				l.failf("--%s: cannot stand beside a list of queues; put it into the list", name)
			}
		}
	}
	text := []byte(list)
	if file != "" {
		var err error
		if text, err = l.read(file); err != nil {
			l.failf("--%squeues-config-file: %w", prefix, err)
			return nil, false
		}
	}
	if !json.Valid(text) {
		l.failf("--%squeues-config: is no JSON", prefix)
		return nil, false
	}
	return json.RawMessage(text), true
}

// foreign warns about flags of another transport than the chosen one.
func (l *Loader) foreign(used []string, transport string) {
	for _, name := range used {
		of := ""
		switch {
		case strings.HasPrefix(name, "pubsub."):
			of = string(GCPPubSub)
		case strings.HasPrefix(name, "redis.ss."):
			of = string(RedisSortedSet)
		case strings.HasPrefix(name, "redis.") && name != "redis.url":
			of = string(RedisPubSub)
		}
		if of != "" && of != transport {
			l.warnf("--%s: ignored, it belongs to %s and the transport is %s", name, of, transport)
		}
	}
}
