package runner

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/llm-weir/weir/harness/evidence"
)

// WriteVegeta writes the records as vegeta results, so that `vegeta report`, `plot` and `encode` read them. Latency counts from the
// intended instant; epoch is the wall time of instant 0. Each result carries the request id, the tenant and, for streams, the time
// to first token in nanoseconds as headers x-weir-id, x-weir-tenant and x-weir-ttft-ns. Records without an end are left out, as
// vegeta has no way to say so.
func WriteVegeta(w io.Writer, epoch time.Time, records []evidence.Client) error {
	ordered := slices.Clone(records)
	// vegeta plot refuses results that are not in the order of time.
	slices.SortFunc(ordered, func(a, b evidence.Client) int {
		return cmp.Or(cmp.Compare(a.Intended, b.Intended), cmp.Compare(a.ID, b.ID))
	})
	encode := vegeta.NewEncoder(w)
	seq := uint64(0)
	for _, rec := range ordered {
		if rec.End == evidence.Never {
			continue
		}
		if err := encode(vegetaResult(epoch, rec, seq)); err != nil {
			return fmt.Errorf("vegeta result of request %s: %w", rec.ID, err)
		}
		seq++
	}
	return nil
}

func vegetaResult(epoch time.Time, rec evidence.Client, seq uint64) *vegeta.Result {
	h := http.Header{"X-Weir-Id": {rec.ID}, "X-Weir-Tenant": {rec.Tenant}}
	if rec.FirstToken != evidence.Never {
		h.Set("X-Weir-Ttft-Ns", strconv.FormatInt(rec.FirstToken-rec.Intended, 10))
	}
	out := &vegeta.Result{
		Attack: rec.Scenario, Seq: seq, Code: uint16(rec.Status), Timestamp: epoch.Add(time.Duration(rec.Intended)),
		Latency: time.Duration(rec.End - rec.Intended), BytesOut: uint64(rec.RequestBytes), BytesIn: uint64(rec.ResponseBytes),
		Method: http.MethodPost, Headers: h,
	}
	// vegeta counts a 2xx without error text as a success; a response that broke off is none.
	if rec.Outcome != evidence.Completed {
		out.Error = strings.TrimSpace(rec.Outcome + " " + cmp.Or(rec.Reason, rec.Error))
	}
	return out
}
