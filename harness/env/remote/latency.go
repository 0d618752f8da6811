package remote

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

// What is unseen at the model servers for a while counts as waiting in the router. That holds only if the way there is much shorter: where
// the fastest of the requests that found the gate open took longer, whatever stands before the router may have held the others.

// wayLimit is the longest way from client to model server at which a wait of sut.GaugeLimit shows anything.
const wayLimit = sut.GaugeLimit / 2

// direct lists the requests of a script that are sent to find the gate open.
func direct(s sut.Script) []string {
	var out []string
	for _, st := range s.Steps {
		if st.Op == sut.OpPlug || st.Op == sut.OpProbe {
			for _, r := range st.Requests {
				out = append(out, r.ID)
			}
		}
	}
	return out
}

// far says that the way through the data plane is too long; "" if it is not, or if nothing is known of it.
func (st *stage) far(log []evidence.Backend) string {
	fastest, who := time.Duration(math.MaxInt64), ""
	for _, b := range log {
		sent, ok := st.SentAt(b.ID)
		if !ok || !slices.Contains(st.direct, b.ID) {
			continue
		}
		if d := time.Duration(b.Arrival) - sent; d < fastest {
			fastest, who = d, b.ID
		}
	}
	if who == "" || fastest <= wayLimit {
		return ""
	}
	return fmt.Sprintf("no request came from its client to a model server in less than %s (%s), with the gate open: at most %s are allowed, or nobody can tell the router's queue "+
		"from what delays requests on their way", fastest.Round(time.Millisecond), who, wayLimit)
}
