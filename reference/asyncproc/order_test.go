package asyncproc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/reference/async"
)

// TestOrderBehindQuota: a quota asks outside and must not mix up what was pulled in order: the earliest deadlines get what there is, and
// go first (AP-TRN-03).
func TestOrderBehindQuota(t *testing.T) {
	for _, c := range []struct {
		params string
		n      int
	}{{`"limit":20,"gating_mode":"blocking"`, 20}, {`"limit":3,"gating_mode":"blocking"`, 3}} {
		bubble(t, func(t *testing.T, r *rig) {
			r.flags.Concurrency = 1
			s := r.serve(fmt.Sprintf(base, queueEntry(`,"gate_type":"redis-quota","gate_params":{"address":"x:1",`+c.params+`}`)))
			defer s.Close()
			var order []string
			for i := range 20 {
				id := fmt.Sprint("m", i)
				r.submit("q", id, time.Duration(20+i)*time.Second, func(q *async.Request) { q.Metadata = map[string]string{"userid": "u"} })
				if i < c.n {
					order = append(order, id)
				}
			}
			r.pass(5 * time.Second)
			var seen []string
			for _, a := range r.seen() {
				seen = append(seen, a.id)
			}
			want(t, c.params, strings.Join(seen, " "), strings.Join(order, " "))
		})
	}
}
