package processor

import (
	"context"
	"strings"
)

// defaultCollector is where an exporter goes whose endpoint nobody has set (OpenTelemetry, OTLP exporter specification).
const defaultCollector = "127.0.0.1:4317"

// fact reads what is no key of the broker, though it is looked at in the same way: the connections of a broker that are open, all that were
// made, its channels with a subscriber, the TLS handshakes that failed at the upstreams, the milliseconds of processor time that p has
// used, and whether there is a collector at the address of exporters that were not told one; ":queries TEXT" are the queries with such a
// text since the page of the Prometheus was set last, ":fetches TEXT" those of the page that gates scrape. False: it cannot be known.
func (r *rig) fact(ctx context.Context, b *broker, name string) (int64, bool) {
	open, accepted := b.proxy.counts()
	name, text, _ := strings.Cut(name, " ")
	switch name {
	case ":queries", ":fetches":
		src := map[string]*source{":queries": r.prom, ":fetches": r.page}[name]
		if src == nil {
			return 0, false
		}
		return int64(src.count(text)), true
	case ":connections":
		return int64(open), true
	case ":accepted":
		return int64(accepted), true
	case ":subscribers":
		return int64(len(b.direct.PubSubChannels(ctx, "*").Val())), true
	case ":handshakes":
		return r.up.refused.Load(), true
	case ":cpu":
		p := r.programs["p"]
		if p == nil || p.run == nil {
			return 0, false
		}
		used, ok := p.run.CPU()
		return used.Milliseconds(), ok
	case ":collector":
		if r.otlp0 == nil { // somebody else may have the port: then it is looked for again
			s, err := newSink(r.clock, r.note, defaultCollector)
			if err != nil {
				return 0, true
			}
			r.otlp0 = s
		}
		return 1, true
	}
	return 0, false
}
