package runner

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/llm-weir/weir/harness/evidence"
)

func TestVegetaReadsTheRecords(t *testing.T) {
	epoch := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	ms := int64(time.Millisecond)
	in := []evidence.Client{
		{Scenario: "s", ID: "late", Intended: 20 * ms, Sent: 25 * ms, FirstToken: evidence.Never, End: 30 * ms, Outcome: evidence.Refused, Status: 429, Reason: "rejected-saturated"},
		{Scenario: "s", ID: "hung", Intended: 5 * ms, End: evidence.Never, Outcome: evidence.Unfinished},
		{Scenario: "s", ID: "early", Tenant: "gold", Intended: 10 * ms, Sent: 12 * ms, FirstToken: 40 * ms, End: 110 * ms, Outcome: evidence.Completed, Status: 200, RequestBytes: 7, ResponseBytes: 9},
		{Scenario: "s", ID: "cut", Intended: 30 * ms, Sent: 30 * ms, FirstToken: evidence.Never, End: 31 * ms, Outcome: evidence.KilledMidStream, Status: 200, Error: "unexpected EOF"},
	}
	var out bytes.Buffer
	if err := WriteVegeta(&out, epoch, in); err != nil {
		t.Fatal(err)
	}
	if in[0].ID != "late" {
		t.Error("the caller's records were reordered")
	}
	decode := vegeta.NewDecoder(&out)
	var metrics vegeta.Metrics
	var got vegeta.Results
	for {
		var r vegeta.Result
		if err := decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got.Add(&r)
		metrics.Add(&r)
	}
	metrics.Close()
	want := []struct {
		id, err string
		latency time.Duration
	}{{"early", "", 100 * time.Millisecond}, {"late", "refused rejected-saturated", 10 * time.Millisecond}, {"cut", "killed-mid-stream unexpected EOF", time.Millisecond}}
	if len(got) != len(want) {
		t.Fatalf("%d results, want %d", len(got), len(want))
	}
	for i, w := range want {
		if r := got[i]; r.Headers.Get("x-weir-id") != w.id || r.Error != w.err || r.Latency != w.latency || r.Seq != uint64(i) || r.Attack != "s" {
			t.Errorf("result %d: %+v, want %+v", i, r, w)
		}
	}
	first := got[0]
	if !first.Timestamp.Equal(epoch.Add(10*time.Millisecond)) || first.Headers.Get("x-weir-ttft-ns") != "30000000" || first.BytesOut != 7 || first.BytesIn != 9 {
		t.Errorf("%+v", first)
	}
	if metrics.Requests != 3 || metrics.Latencies.Max != 100*time.Millisecond || metrics.StatusCodes["200"] != 2 {
		t.Errorf("vegeta sums up %+v", metrics)
	}
}

func TestAWriteErrorNamesTheRequest(t *testing.T) {
	err := WriteVegeta(broken{}, time.Time{}, []evidence.Client{{ID: "r7", End: 1}})
	if err == nil || !errors.Is(err, io.ErrShortWrite) || !bytes.Contains([]byte(err.Error()), []byte("r7")) {
		t.Errorf("got %v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
