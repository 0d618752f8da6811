package plan

import "slices"

// Shard is the part of p that worker i of n plays: each request is in exactly one of them, a closed loop as a whole. Loops keep their numbers.
func (p Plan) Shard(i, n int) Plan {
	out := p
	out.Requests = nil
	open := 0
	for _, r := range p.Requests {
		at := r.Loop - 1
		if r.Loop == 0 {
			at = open
			open++
		}
		if at%n == i {
			out.Requests = append(out.Requests, r)
		}
	}
	out.Loops = slices.Clone(p.Loops)
	return out
}
