package remote

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/sim-vllm/server"
)

// The clocks of the simulators are compared with the stage's by round trips: a simulator reads its clock somewhere between the sending
// of the question and the arrival of the answer, so half the shortest round trip bounds the error of the middle. It is done before and
// after the script; how far the two disagree is added, for clocks that drift.

// roundTrips is how many of them are made with each clock, each time.
const roundTrips = 12

// SkewLimit is the largest bound with which instants of different clocks are compared. The tightest tolerances of checks are 50 ms.
const SkewLimit = 5 * time.Millisecond

// reading is what is known of one clock.
type reading struct {
	offset int64 // it minus the stage's
	bound  int64 // of the error of offset
}

// compare reads every clock behind the sims; those with the same name are one.
func (st *stage) compare(ctx context.Context) (map[string]reading, error) {
	found := map[string]reading{}
	for range roundTrips {
		for _, sm := range st.sims {
			var a server.About
			before := int64(st.Clock.Now())
			if err := sm.bounded(ctx, http.MethodGet, "/admin/about", nil, &a); err != nil {
				return nil, err
			}
			after := int64(st.Clock.Now())
			r := reading{offset: a.NowNs - (before+after)/2, bound: (after-before)/2 + 1}
			if best, ok := found[a.Clock]; !ok || r.bound < best.bound {
				found[a.Clock] = r
			}
		}
	}
	return found, nil
}

// align gives every simulator the offset of its clock.
func (st *stage) align(ctx context.Context) error {
	var err error
	if st.before, err = st.compare(ctx); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, sm := range st.sims {
		sm.offset = st.before[sm.about.Clock].offset
	}
	return nil
}

// settleClocks compares once more and says how far instants may be off, and what that makes impossible.
func (st *stage) settleClocks(ctx context.Context, log []evidence.Backend) (bound time.Duration, blur string, err error) {
	after, err := st.compare(ctx)
	if err != nil {
		return 0, "", err
	}
	bounds := map[string]int64{} // by endpoint
	clocks := map[string]string{}
	var text strings.Builder
	for _, sm := range st.sims {
		a, b := st.before[sm.about.Clock], after[sm.about.Clock]
		n := max(a.bound, b.bound) + distance(a.offset, b.offset)
		bounds[sm.spec.Name], clocks[sm.spec.Name] = n, sm.about.Clock
		bound = max(bound, time.Duration(n))
		fmt.Fprintf(&text, "%s (%s, clock %s): %d ns ahead, known to within %d ns; %d ns ahead at the end, to within %d ns\n", sm.spec.Name, sm.own, sm.about.Clock,
			a.offset, a.bound, b.offset, b.bound)
	}
	if bound > SkewLimit {
		blur = fmt.Sprintf("the clocks of clients and simulators can be compared to within %s only, at most %s are allowed", bound, SkewLimit)
	}
	for i := 1; i < len(log); i++ {
		a, b := log[i-1], log[i]
		if n := bounds[a.Endpoint] + bounds[b.Endpoint]; clocks[a.Endpoint] != clocks[b.Endpoint] && b.Arrival-a.Arrival <= n && blur == "" {
			blur = fmt.Sprintf("%s at %s and %s at %s arrived within %s, less than the %s to which the clocks of these simulators can be compared", a.ID, a.Endpoint, b.ID,
				b.Endpoint, time.Duration(b.Arrival-a.Arrival), time.Duration(n))
		}
	}
	st.out.File("clocks.txt", []byte(text.String()+blur))
	return bound, blur, nil
}

func distance(a, b int64) int64 { return max(a-b, b-a) }
