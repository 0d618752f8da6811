package flowcontrol

import "testing"

// TestCeilings: whatever the numbers, the ends are exact, the ceilings never rise with falling priority and every provisioned band
// counts (FC-CEIL-04, FC-CEIL-05, FC-CEIL-06, FC-CEIL-10, FC-CEIL-13).
func TestCeilings(t *testing.T) {
	for _, byValue := range []bool{false, true} {
		for n := 1; n <= 12; n++ {
			for high := 1; high <= 10; high++ {
				for low := range high {
					cfg := valid()
					cfg.Ceiling = CeilingConfig{Kind: Holdback, Min: float64(low) / 10, Max: float64(high) / 10, ByValue: byValue}
					for i := range n {
						cfg.Bands = append(cfg.Bands, BandConfig{Priority: i * i * i})
					}
					c, err := New(cfg)
					if err != nil {
						t.Fatal(err)
					}
					bands := c.Bands(nil)
					if len(bands) != n || bands[0].Ceiling != cfg.Ceiling.Max || n > 1 && bands[n-1].Ceiling != cfg.Ceiling.Min {
						t.Fatalf("%+v: %+v", cfg.Ceiling, bands)
					}
					for i := 1; i < n; i++ {
						if bands[i].Ceiling > bands[i-1].Ceiling {
							t.Fatalf("%+v: ceiling rises: %+v", cfg.Ceiling, bands)
						}
					}
				}
			}
		}
	}
}
