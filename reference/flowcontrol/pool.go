package flowcontrol

import (
	"math"
	"slices"
	"time"
)

// EndpointID is an endpoint's index in the driver's own table; small, dense, never reused for another address in a run.
type EndpointID int

// Role says in which stage an endpoint counts (spec/endpoint-picker.md §4.3).
type Role uint8

// The roles. An endpoint without a role label counts as decode.
const (
	RoleDecode Role = iota
	RolePrefill
	RoleBoth
	RoleNone
	roles
)

// Endpoint is a model server of the pool.
type Endpoint struct {
	ID      EndpointID
	Name    string
	Address string // ip:port
	Role    Role
	Labels  string // canonical "k=v,k=v", sorted by key; for label filters
}

// Load is one metrics sample. Missing families are marked: they are never read as zero.
type Load struct {
	At         time.Duration // when the scrape began: whatever was dispatched later is not in it
	Waiting    float64
	Running    float64
	KV         float64 // 0..1
	HasWaiting bool
	HasKV      bool
	// Adapters are the LoRA adapters that run on the server (or wait, where it does not tell them apart), WaitingAdapters those that
	// only wait, MaxAdapters its slots; for the affinity scorer.
	Adapters        []string
	WaitingAdapters []string
	MaxAdapters     int
	// OK is false for a failed scrape: the last values stay and grow stale.
	OK bool
}

// Member is an endpoint as the pool knows it.
type Member struct {
	Endpoint
	Load    Load // last good sample; means nothing if Sampled is false
	Sampled bool

	present  bool
	scraped  bool // ever; Load.At is then that of the last good sample, also while Sampled is false
	inFlight int
	tokens   int64
	// foreign and foreignTokens are what other replicas have in flight here.
	foreign       int
	foreignTokens int64

	unseen  list // entries dispatched to run here since the last sample began, oldest first
	filling list // entries whose prompts were sent here since then, to decode elsewhere
	extra   int  // the number of both
}

// InFlight is the number of requests dispatched to the endpoint whose streams have not ended.
func (m *Member) InFlight() int { return m.inFlight }

// InFlightTokens is the accounted work of these requests.
func (m *Member) InFlightTokens() int64 { return m.tokens }

// Pool is the set of endpoints with what is known of their load: samples and the picker's own in-flight accounting.
type Pool struct {
	det     DetectorConfig
	stages  bool
	limit   int       // requests in flight at which the headroom filter excludes an endpoint (Concurrency)
	budget  int64     // the same for tokens
	table   []*Member // by ID; keeps endpoints that left, since their requests may still run
	members []*Member // present ones by ascending ID
	count   [roles]int
	flight  [roles]int // in flight on present members, by all replicas
	tokens  [roles]int64
	foreign foreign

	gate  reading // last evaluation for the gate
	valid bool    // gate is up to date
}

func newPool(det DetectorConfig, stages bool) Pool {
	// Truncated, not rounded: 100 with headroom 0.1 is 110, with 0.15 it is 114 (FC-HEAD-11).
	return Pool{
		det: det, stages: stages,
		limit:  int(min(float64(det.MaxConcurrency)*(1+det.Headroom), math.MaxInt32)),
		budget: int64(min(float64(det.MaxTokens)*(1+det.Headroom), 1<<62)),
	}
}

// Members are the endpoints in the pool by ascending ID. The slice belongs to the pool.
func (p *Pool) Members() []*Member { return p.members }

// Member is what is known of an endpoint, also of one that has left the pool; nil if nothing was ever heard of it.
func (p *Pool) Member(id EndpointID) *Member {
	if id < 0 || int(id) >= len(p.table) {
		return nil
	}
	return p.table[id]
}

// set adds or changes an endpoint; whether it was added.
func (p *Pool) set(ep Endpoint) (added bool) {
	if ep.ID < 0 || ep.Role >= roles {
		return false
	}
	m := p.slot(ep.ID)
	p.tally(m, -1)
	added = !m.present
	if added {
		i, _ := slices.BinarySearchFunc(p.members, ep.ID, func(m *Member, id EndpointID) int { return int(m.ID - id) })
		p.members = slices.Insert(p.members, i, m)
	}
	m.Endpoint, m.present = ep, true
	p.tally(m, +1)
	return added
}

// slot is the member of that ID, made if nothing was heard of it yet.
func (p *Pool) slot(id EndpointID) *Member {
	for len(p.table) <= int(id) {
		p.table = append(p.table, nil)
	}
	if p.table[id] == nil {
		p.table[id] = &Member{}
	}
	return p.table[id]
}

// remove takes an endpoint out of the pool; whether it was in it.
func (p *Pool) remove(id EndpointID) (removed bool) {
	m := p.Member(id)
	if m == nil || !m.present {
		return false
	}
	p.tally(m, -1)
	m.present = false
	// An endpoint that comes back is a new process for all we know: its load is unknown until it is scraped. A scrape that began before
	// the last one stays late news: what was dispatched in between is in that one, and would be in none.
	m.Load, m.Sampled = Load{At: m.Load.At}, false
	p.members = slices.DeleteFunc(p.members, func(o *Member) bool { return o == m })
	return true
}

// tally adds a present member to the sums of its role, or takes it away.
func (p *Pool) tally(m *Member, n int) {
	p.valid = false
	if m.present {
		p.count[m.Role] += n
		p.flight[m.Role] += n * m.requests()
		p.tokens[m.Role] += int64(n) * m.work()
	}
}

// sample takes a metrics sample. A failed one changes nothing, one older than the last is late news.
func (p *Pool) sample(now time.Duration, id EndpointID, l Load) {
	m := p.Member(id)
	if m == nil || !m.present || !l.OK {
		return
	}
	l.At = min(l.At, now) // a sample from the future would never grow stale
	if m.scraped && l.At < m.Load.At {
		return
	}
	l.HasWaiting = l.HasWaiting && sane(l.Waiting)
	l.HasKV = l.HasKV && sane(l.KV)
	l.Adapters = append(m.Load.Adapters[:0], l.Adapters...)
	l.WaitingAdapters = append(m.Load.WaitingAdapters[:0], l.WaitingAdapters...)
	m.Load, m.Sampled, m.scraped = l, true, true
	// A request dispatched in the very instant in which the scrape began cannot have reached the server before it.
	for e := m.unseen.head; e != nil && e.started < l.At; e = m.unseen.head {
		m.seen(e, &m.unseen, loadSlot)
	}
	for e := m.filling.head; e != nil && e.started < l.At; e = m.filling.head {
		m.seen(e, &m.filling, prefillSlot)
	}
	p.valid = false
}

// sane refuses what no server can mean: NaN, infinities and negative numbers would open the gate or spoil the sums.
func sane(v float64) bool { return v >= 0 && v <= 1e18 }
