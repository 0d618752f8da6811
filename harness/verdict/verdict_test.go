package verdict

import "testing"

func TestWorstPrecedence(t *testing.T) {
	if Worst() != Inconclusive {
		t.Fatal("no verdict must be inconclusive: absence is never success")
	}
	ks := Kinds()
	for i, a := range ks {
		for j, b := range ks {
			want := ks[max(i, j)]
			if got := Worst(a, b); got != want {
				t.Errorf("Worst(%v, %v) = %v, want %v", a, b, got, want)
			}
		}
	}
}

func TestKindRoundTrip(t *testing.T) {
	for _, k := range Kinds() {
		b, _ := k.MarshalText()
		var back Kind
		if err := back.UnmarshalText(b); err != nil || back != k {
			t.Errorf("%v came back as %v, %v", k, back, err)
		}
	}
	var k Kind
	if k.UnmarshalText([]byte("PASS")) == nil {
		t.Error("an unknown word must be refused")
	}
	var zero Verdict
	if zero.Kind == Pass {
		t.Error("a forgotten verdict must not pass")
	}
}

func TestSummarize(t *testing.T) {
	reqs := []Requirement{{ID: "A", Level: "core"}, {ID: "B", Level: "core"}, {ID: "C", Level: "extended"}}
	rs := Summarize(reqs, []Verdict{
		{Requirement: "A", Kind: Pass, Figure: "fine"},
		{Requirement: "A", Kind: Fail, Figure: "broken", Why: "because"},
		{Requirement: "C", Kind: NotApplicable},
	})
	if rs[0].Kind != Fail || rs[0].Figure != "broken" || rs[0].Why != "because" {
		t.Errorf("A: %+v", rs[0])
	}
	if rs[1].Kind != Inconclusive {
		t.Errorf("a requirement without verdicts is %v, want inconclusive", rs[1].Kind)
	}
	if got := Overall(rs, "core"); got != Fail {
		t.Errorf("overall %v", got)
	}
	if got := Overall(rs, "extended"); got != Inconclusive {
		t.Errorf("a level in which nothing applied is %v, want inconclusive", got)
	}
}
