// Package conformance is the catalogue as Ginkgo specs: one spec a requirement, labelled with its family, level and id.
//
//	weir certify, go test ./suites/... and the ginkgo command run the same tree:
//	Describe(family) > It(id) --> Judge.Result --> pass | skipped (not applicable) | failed (fail, error, inconclusive)
//
// A spec asserts nothing by itself: it waits for the verdict that the sealed evidence gives.
package conformance

import (
	"context"
	"fmt"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/llm-weir/weir/harness/verdict"
)

// Judge gives the result of a requirement once what it depends on has been played.
type Judge interface {
	Requirements() []verdict.Requirement
	Result(ctx context.Context, id string) (verdict.Result, error)
}

// Family is the part of an id before its number: FC-PRI of FC-PRI-01.
func Family(id string) string {
	if i := strings.LastIndex(id, "-"); i > 0 {
		return id[:i]
	}
	return id
}

// Register adds the specs to Ginkgo's tree. onResult, if not nil, hears of each result as its spec ends.
func Register(j Judge, onResult func(verdict.Result)) {
	// One container, because Ginkgo shuffles what stands beside each other at the top.
	ginkgo.Describe("flow control", func() {
		for i, q := range j.Requirements() {
			// Ginkgo orders specs by file, line and text; the place in the catalogue stands in for the line.
			at := types.CodeLocation{FileName: "suites/catalog", LineNumber: i + 1}
			name := fmt.Sprintf("%s %s", q.ID, q.Title)
			ginkgo.It(name, ginkgo.Label(Family(q.ID), q.Level, q.ID), at, func(ctx ginkgo.SpecContext) {
				r, err := j.Result(ctx, q.ID)
				if err != nil {
					ginkgo.Fail(fmt.Sprintf("%s: %v", q.ID, err))
				}
				ginkgo.AddReportEntry("figure", r.Figure)
				if onResult != nil {
					onResult(r)
				}
				switch r.Kind {
				case verdict.Pass:
				case verdict.NotApplicable:
					ginkgo.Skip(r.Why)
				default:
					ginkgo.Fail(fmt.Sprintf("%s: %s: %s", r.Kind, r.Figure, r.Why))
				}
			})
		}
	})
}
