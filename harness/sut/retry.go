package sut

import (
	"context"
	"fmt"

	"github.com/llm-weir/weir/harness/evidence"
)

// OpRetry is the owner of refused requests: each of IDs that was refused is sent again, Spacing apart, as a new request with the next
// attempt in its id, until none is refused any more or Limit is over.
const OpRetry Op = "retry"

// Refuser is a stage that knows which requests were refused.
type Refuser interface {
	Refused(id string) bool
}

// Attempt is the id of the n-th attempt of a request; the first is the request itself.
func Attempt(id string, n int) string {
	if n < 2 {
		return id
	}
	return fmt.Sprintf("%s~%d", id, n)
}

func (p player) retry(ctx context.Context, s Step, rec *evidence.Step) {
	st, ok := p.st.(Refuser)
	if !ok {
		rec.OK, rec.Detail = false, "this environment does not know who was refused"
		return
	}
	until := p.st.Now() + orDefault(s.Limit, EndLimit)
	left := s.IDs
	for n := 1; ; n++ {
		var again []string
		for _, first := range left {
			id := Attempt(first, n)
			if !p.st.Await(ctx, until, func() bool { return p.st.Ended(id) }) {
				rec.OK, rec.Detail = false, id+" did not end"
				return
			}
			if st.Refused(id) {
				again = append(again, first)
			}
		}
		switch left = again; {
		case len(left) == 0:
			return
		case p.st.Now() >= until || ctx.Err() != nil:
			rec.OK, rec.Detail = false, fmt.Sprintf("%d are still refused", len(left))
			return
		}
		for _, first := range left {
			r := p.sent[first]
			r.ID = Attempt(first, n+1)
			p.st.Send(r)
			rec.IDs = append(rec.IDs, r.ID)
			p.st.Await(ctx, p.st.Now()+s.Spacing, never)
		}
	}
}
