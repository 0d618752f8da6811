package epp

import (
	"sort"
	"sync"

	"github.com/llm-weir/weir/reference/picker"
)

// poolTable gives endpoints their ids: small, dense, and never reused for another address.
type poolTable struct {
	change sync.Mutex // held over a whole SetEndpoints

	mu     sync.RWMutex
	ids    map[string]picker.EndpointID // by address, for ever
	byID   []picker.Endpoint            // last known state, also of endpoints that left: requests may still run there
	member map[picker.EndpointID]bool
	pool   []picker.Endpoint
}

func (p *poolTable) init() {
	p.ids, p.member = map[string]picker.EndpointID{}, map[picker.EndpointID]bool{}
}

// update replaces the pool and tells what is new or changed and what left, in a fixed order. Of two endpoints with one address the
// first counts.
func (p *poolTable) update(list []picker.Endpoint) (set, removed, pool []picker.Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := map[picker.EndpointID]bool{}
	for _, e := range list {
		id, known := p.ids[e.Address]
		if !known {
			id = picker.EndpointID(len(p.byID))
			p.ids[e.Address] = id
			p.byID = append(p.byID, picker.Endpoint{})
		}
		if next[id] {
			continue
		}
		next[id] = true
		e.ID = id
		if !p.member[id] || p.byID[id] != e {
			set = append(set, e)
		}
		p.byID[id] = e
		pool = append(pool, e)
	}
	for id := range p.member {
		if !next[id] {
			removed = append(removed, p.byID[id])
		}
	}
	sort.Slice(removed, func(i, j int) bool { return removed[i].ID < removed[j].ID })
	p.member, p.pool = next, pool
	return set, removed, append([]picker.Endpoint(nil), pool...)
}

func (p *poolTable) list() []picker.Endpoint {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return append([]picker.Endpoint(nil), p.pool...)
}

func (p *poolTable) get(id picker.EndpointID) (picker.Endpoint, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if id < 0 || int(id) >= len(p.byID) {
		return picker.Endpoint{}, false
	}
	return p.byID[id], true
}

// distinct lists the priorities of the objectives, highest first.
func distinct(objectives map[string]int) []int {
	seen := map[int]bool{}
	var out []int
	for _, p := range objectives {
		if !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	sort.Sort(sort.Reverse(sort.IntSlice(out)))
	return out
}
