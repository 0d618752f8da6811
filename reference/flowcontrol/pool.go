package flowcontrol

import (
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
	// Adapters are the LoRA adapters that run or wait on the server, MaxAdapters its slots; for the affinity scorer.
	Adapters    []string
	MaxAdapters int
	// OK is false for a failed scrape: the last values stay and grow stale.
	OK bool
}

// Member is an endpoint as the pool knows it.
type Member struct {
	Endpoint
	Load    Load // last good sample; zero if Sampled is false
	Sampled bool

	present  bool
	inFlight int
	unseen   list // entries dispatched since the last sample began, oldest first
	extra    int  // their number
}

// InFlight is the number of requests dispatched to the endpoint whose streams have not ended.
func (m *Member) InFlight() int { return m.inFlight }

// Pool is the set of endpoints with what is known of their load: samples and the picker's own in-flight accounting.
type Pool struct {
	det     DetectorConfig
	stages  bool
	limit   int       // in-flight count at which the headroom filter excludes an endpoint (Concurrency)
	table   []*Member // by ID; keeps endpoints that left, since their requests may still run
	members []*Member // present ones by ascending ID
	count   [roles]int
	flight  [roles]int // in flight on present members

	gate  float64 // last saturation at the gate
	valid bool    // gate is up to date, until the instant in until
	until time.Duration
	timed bool // gate changes at until by the mere passing of time
}

func newPool(det DetectorConfig, stages bool) Pool {
	// Truncated, not rounded: 100 with headroom 0.1 is 110, with 0.15 it is 114 (FC-HEAD-11).
	return Pool{det: det, stages: stages, limit: int(float64(det.MaxConcurrency) * (1 + det.Headroom))}
}

// Members are the endpoints in the pool by ascending ID. The slice belongs to the pool.
func (p *Pool) Members() []*Member { return p.members }

// InFlight is the number of requests running on an endpoint, also on one that has left the pool.
func (p *Pool) InFlight(id EndpointID) int {
	if id < 0 || int(id) >= len(p.table) || p.table[id] == nil {
		return 0
	}
	return p.table[id].inFlight
}

func (p *Pool) set(ep Endpoint) {
	if ep.ID < 0 || ep.Role >= roles {
		return
	}
	for len(p.table) <= int(ep.ID) {
		p.table = append(p.table, nil)
	}
	m := p.table[ep.ID]
	if m == nil {
		m = &Member{}
		p.table[ep.ID] = m
	}
	p.tally(m, -1)
	if !m.present {
		i, _ := slices.BinarySearchFunc(p.members, ep.ID, func(m *Member, id EndpointID) int { return int(m.ID - id) })
		p.members = slices.Insert(p.members, i, m)
	}
	m.Endpoint, m.present = ep, true
	p.tally(m, +1)
}

func (p *Pool) remove(id EndpointID) {
	if id < 0 || int(id) >= len(p.table) || p.table[id] == nil || !p.table[id].present {
		return
	}
	m := p.table[id]
	p.tally(m, -1)
	m.present = false
	// An endpoint that comes back is a new process for all we know: its load is unknown until it is scraped.
	m.Load, m.Sampled = Load{}, false
	p.members = slices.DeleteFunc(p.members, func(o *Member) bool { return o == m })
}

// tally adds a present member to the sums of its role, or takes it away.
func (p *Pool) tally(m *Member, n int) {
	p.valid = false
	if m.present {
		p.count[m.Role] += n
		p.flight[m.Role] += n * m.inFlight
	}
}

// sample takes a metrics sample. A failed one changes nothing, one older than the last is late news.
func (p *Pool) sample(now time.Duration, id EndpointID, l Load) {
	if id < 0 || int(id) >= len(p.table) || p.table[id] == nil || !p.table[id].present || !l.OK {
		return
	}
	m := p.table[id]
	l.At = min(l.At, now) // a sample from the future would never grow stale
	if m.Sampled && l.At < m.Load.At {
		return
	}
	l.HasWaiting = l.HasWaiting && sane(l.Waiting)
	l.HasKV = l.HasKV && sane(l.KV)
	m.Load, m.Sampled = l, true
	// A request dispatched in the very instant in which the scrape began cannot have reached the server before it.
	for e := m.unseen.head; e != nil && e.started < l.At; e = m.unseen.head {
		m.unseen.remove(e, loadSlot)
		e.at[loadSlot] = 0
		m.extra--
	}
	p.valid = false
}

// sane refuses what no server can mean: NaN, infinities and negative numbers would open the gate or spoil the sums.
func sane(v float64) bool { return v >= 0 && v <= 1e18 }

// start accounts an entry as in flight on a member.
func (p *Pool) start(now time.Duration, e *Entry, m *Member) {
	e.member, e.started = m, now
	m.inFlight++
	if m.present {
		p.flight[m.Role]++
	}
	m.unseen.push(e, loadSlot)
	e.at[loadSlot] = 1
	m.extra++
	p.valid = false
}

// stop ends the accounting of an entry.
func (p *Pool) stop(e *Entry) {
	m := e.member
	m.inFlight--
	if m.present {
		p.flight[m.Role]--
	}
	if e.at[loadSlot] != 0 {
		m.unseen.remove(e, loadSlot)
		e.at[loadSlot] = 0
		m.extra--
	}
	p.valid = false
}
