package virtual_test

import (
	"context"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/profile"
)

// BenchmarkCatalogue plays and judges the whole catalogue; "x-real-time" is simulated time over the time it took.
func BenchmarkCatalogue(b *testing.B) {
	var simulated time.Duration
	for b.Loop() {
		s := session(b, profile.Default, profile.Default, 7, "")
		s.Start(context.Background())
		bundle, _, err := s.Seal()
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range bundle.Manifest.Scenarios {
			simulated += time.Duration(e.DurationNs)
		}
	}
	b.ReportMetric(simulated.Seconds()/b.Elapsed().Seconds(), "x-real-time")
	b.ReportMetric(simulated.Seconds()/float64(b.N), "simulated-s/op")
}
