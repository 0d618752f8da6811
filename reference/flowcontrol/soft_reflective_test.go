package flowcontrol

import (
	"math"
	"testing"
)

// TestReflect: the formula of the contract for any number of bands and any saturation, over full periods; the ceilings never rise with
// falling priority (FC-CEIL-11, FC-CEIL-13).
func TestReflect(t *testing.T) {
	for n := 1; n <= 6; n++ {
		cfg := valid()
		cfg.Ceiling = CeilingConfig{Kind: SoftReflective}
		for i := range n {
			cfg.Bands = append(cfg.Bands, BandConfig{Priority: i})
		}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		tick := int64(0)
		for k := range 26 {
			s := float64(k) / 20
			period := int64(math.Max(1, math.Round(s/(1-s+1e-9))))
			opened, calls := int64(0), 3*period
			if s >= 1 {
				calls = 3
			}
			for range calls {
				c.reflect(s)
				if n > 1 && s >= 1-s && s < 1 {
					tick++
				}
				if c.alternation.tick != tick {
					t.Fatalf("%d bands, saturation %v: tick %d, want %d", n, s, c.alternation.tick, tick)
				}
				for i, b := range c.bands {
					want := 1.0
					if reached := i > 0 && s >= 1-float64(i)*s/float64(n-1); reached && s >= 1 || reached && s >= 0.5 && tick%period != 0 {
						want = 0
					}
					if b.ceiling != want || i > 0 && b.ceiling > c.bands[i-1].ceiling {
						t.Fatalf("%d bands, saturation %v, tick %d, band %d: ceiling %v, want %v", n, s, tick, i, b.ceiling, want)
					}
				}
				if c.bands[n-1].ceiling == 1 {
					opened++
				}
			}
			if want := calls / period; n > 1 && s >= 0.5 && s < 1 && opened != want {
				t.Errorf("%d bands, saturation %v: the lowest band was open in %d of %d calls, want %d", n, s, opened, calls, want)
			}
		}
	}
}
