package scheduling

import "github.com/llm-weir/weir/reference/flowcontrol"

// prefixes is the approximate prefix cache: for each endpoint the blocks of the prompts it was sent lately. It is a guess at the
// engine's own cache from the picker's side, never a reading of it.
//
//	score = leading blocks of the prompt that the endpoint has / blocks of the prompt
//
// A block's hash stands for the whole prompt up to its end, so that equal hashes mean equal beginnings.
type prefixes struct {
	cfg PrefixConfig
	of  []*lru // by endpoint id
}

// blocks is the part of a prompt that is matched and remembered.
func (p *prefixes) blocks(prompt []uint64) []uint64 {
	return prompt[:min(len(prompt), p.cfg.MaxBlocks)]
}

// share is the score of an endpoint; a prompt without a whole block matches nowhere.
func (p *prefixes) share(id flowcontrol.EndpointID, prompt []uint64) float64 {
	prompt = p.blocks(prompt)
	if len(prompt) == 0 || int(id) >= len(p.of) || p.of[id] == nil {
		return 0
	}
	n := 0
	for n < len(prompt) && p.of[id].has(prompt[n]) {
		n++
	}
	return float64(n) / float64(len(prompt))
}

// record notes that an endpoint was sent a prompt. Its first blocks are the last to be displaced: a later one is worth nothing
// without them.
func (p *prefixes) record(id flowcontrol.EndpointID, prompt []uint64) {
	prompt = p.blocks(prompt)
	prompt = prompt[:min(len(prompt), p.cfg.LRUCapacity)]
	if len(prompt) == 0 {
		return
	}
	for int(id) >= len(p.of) {
		p.of = append(p.of, nil)
	}
	if p.of[id] == nil {
		p.of[id] = &lru{capacity: p.cfg.LRUCapacity, at: map[uint64]int32{}, nodes: make([]node, 1)}
	}
	for i := len(prompt) - 1; i >= 0; i-- {
		p.of[id].touch(prompt[i])
	}
}

// forget clears what is known of an endpoint that left: one that comes back is a new process.
func (p *prefixes) forget(id flowcontrol.EndpointID) {
	if id >= 0 && int(id) < len(p.of) {
		p.of[id] = nil
	}
}

// lru is a set of hashes of limited size that displaces the one touched longest ago. Nodes form a ring through node 0, which holds
// nothing: after it comes the newest, before it the oldest.
type lru struct {
	capacity int
	at       map[uint64]int32
	nodes    []node
}

type node struct {
	hash       uint64
	prev, next int32
}

func (l *lru) has(hash uint64) bool { return l.at[hash] != 0 }

func (l *lru) touch(hash uint64) {
	i := l.at[hash]
	switch {
	case i != 0:
		l.unlink(i)
	case len(l.nodes) <= l.capacity:
		i = int32(len(l.nodes))
		l.nodes = append(l.nodes, node{})
	default:
		i = l.nodes[0].prev
		l.unlink(i)
		delete(l.at, l.nodes[i].hash)
	}
	first := l.nodes[0].next
	l.nodes[i] = node{hash: hash, prev: 0, next: first}
	l.nodes[first].prev = i
	l.nodes[0].next = i
	l.at[hash] = i
}

func (l *lru) unlink(i int32) {
	n := l.nodes[i]
	l.nodes[n.prev].next = n.next
	l.nodes[n.next].prev = n.prev
}
