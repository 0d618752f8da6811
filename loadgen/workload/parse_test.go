package workload

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/loadgen/arrival"
)

const good = `name: two-tenants
duration: 30s
tenants:
- name: gold
  fairnessID: 17
  objective: interactive
  arrival: {process: gamma, rate: 5, cv: 2}
  promptTokens: {lognormal: {mean: 500, cv: 1, min: 16, max: 8000}}
  outputTokens: {uniform: {min: 20, max: 200}}
  maxTokens: 100
  stream: true
  path: chat
  start: 5s
  stop: 20s
  cancelAfter: 250ms
  cancelFraction: 0.1
- name: batch
  arrival: {process: closed, workers: 8, think: 100ms}
  promptTokens: &p {fixed: 2000}
  outputTokens: *p
  cancelAfter: 1s
`

func TestParseReadsEveryField(t *testing.T) {
	got, err := Parse("w.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	want := Spec{Name: "two-tenants", Duration: 30 * time.Second, Tenants: []Tenant{
		{
			Name: "gold", FairnessID: "17", Objective: "interactive", Arrival: Arrival{Process: arrival.Gamma, Rate: 5, CV: 2},
			Prompt: Lengths{Distribution: Lognormal, Mean: 500, CV: 1, Min: 16, Max: 8000},
			Output: Lengths{Distribution: Uniform, Min: 20, Max: 200}, MaxTokens: 100, Stream: true, Path: PathChat,
			Start: 5 * time.Second, Stop: 20 * time.Second, CancelAfter: 250 * time.Millisecond, CancelFraction: 0.1,
		},
		{
			Name: "batch", Arrival: Arrival{Process: Closed, Workers: 8, Think: 100 * time.Millisecond},
			Prompt: Lengths{Distribution: Fixed, Value: 2000}, Output: Lengths{Distribution: Fixed, Value: 2000},
			Path: PathCompletions, CancelAfter: time.Second, CancelFraction: 1,
		},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("a parsed spec is invalid: %v", err)
	}
}

// tenant is a file with one tenant whose line 4 is the given field; the others are valid and come later.
func tenant(line4 string) string {
	fields := map[string]string{
		"arrival":      "arrival: {process: poisson, rate: 5}",
		"promptTokens": "promptTokens: {fixed: 10}",
		"outputTokens": "outputTokens: {fixed: 10}",
		"name":         "name: a",
	}
	file := "name: n\nduration: 10s\ntenants:\n- " + line4 + "\n"
	for _, k := range []string{"name", "arrival", "promptTokens", "outputTokens"} {
		if !strings.HasPrefix(line4, k+":") {
			file += "  " + fields[k] + "\n"
		}
	}
	return file
}

func TestParseReportsEachMistakeAtItsLine(t *testing.T) {
	for _, row := range []struct {
		why, file string
		want      []string // one per error, in order
	}{
		{"nothing", "", []string{"w.yaml:1: the file is empty"}},
		{"only a comment", "# soon\n", []string{"w.yaml:1: the file is empty"}},
		{"broken YAML", "name: n\nduration: [\n", []string{"no valid YAML"}},
		{"a list at the top", "- a\n", []string{"w.yaml:1: a list where fields belong"}},
		{"two documents", tenant("name: a") + "---\nname: b\n", []string{"a second document"}},
		{"an empty mapping", "{}\n", []string{":1: name: no name", ":1: duration: ", ":1: tenants: no tenants"}},
		{"an unknown field at the top", "x: 1\n" + tenant("name: a"), []string{"w.yaml:1: x: unknown field: use name, duration, tenants"}},
		{"an unknown field of a tenant", tenant("fairnessId: a"), []string{"w.yaml:4: tenants[0].fairnessId: unknown field: use name, fairnessID"}},
		{"a field given twice", "name: n\nname: m\nduration: 1s\ntenants: [{name: a, arrival: {process: poisson, rate: 1}, promptTokens: {fixed: 1}, outputTokens: {fixed: 1}}]\n",
			[]string{"w.yaml:2: name: field given twice"}},
		{"a field without value", tenant("objective:"), []string{"w.yaml:4: tenants[0].objective: no value"}},
		{"a merge key", tenant("<<: {stream: true}"), []string{"w.yaml:4: tenants[0].<<: unknown field"}},
		{"tenants that are no list", "name: n\nduration: 1s\ntenants: {a: 1}\n", []string{"w.yaml:3: tenants: a mapping where a list belongs"}},
		{"a tenant that is no mapping", "name: n\nduration: 1s\ntenants:\n- gold\n", []string{"w.yaml:4: tenants[0]: \"gold\" where fields belong"}},
		{"a duration without unit", "name: n\nduration: 30\ntenants:\n- name: a\n  arrival: {process: poisson, rate: 1}\n  promptTokens: {fixed: 1}\n  outputTokens: {fixed: 1}\n",
			[]string{"w.yaml:2: duration: \"30\" is no duration: write a number with its unit"}},
		{"a duration of zero", "name: n\nduration: 0s\ntenants:\n- name: a\n  arrival: {process: poisson, rate: 1}\n  promptTokens: {fixed: 1}\n  outputTokens: {fixed: 1}\n",
			[]string{"w.yaml:2: duration: 0s is not above 0s"}},
		{"a tenant without anything", "name: n\nduration: 1s\ntenants:\n- stream: true\n",
			[]string{":4: tenants[0].name: ", ":4: tenants[0].arrival.process: no arrival", ":4: tenants[0].promptTokens: no length", ":4: tenants[0].outputTokens: no length"}},
		{"a name with a dot", tenant("name: a.b"), []string{"w.yaml:4: tenants[0].name: tenant name \"a.b\": use 1 to 63"}},
		{"a header that cannot be sent", tenant("fairnessID: \"a\\nb\""), []string{"w.yaml:4: tenants[0].fairnessID: "}},
		{"a duplicate tenant", tenant("name: a") + "- {name: a, arrival: {process: poisson, rate: 1}, promptTokens: {fixed: 1}, outputTokens: {fixed: 1}}\n",
			[]string{"w.yaml:8: tenants[1].name: tenant name \"a\" is already used by tenant 1"}},
		{"an unknown process", tenant("arrival: {process: weibull, rate: 1}"), []string{":4: tenants[0].arrival.process: unknown arrival process \"weibull\": use constant"}},
		{"no rate", tenant("arrival: {process: poisson}"), []string{":4: tenants[0].arrival.rate: rate 0 is not above 0"}},
		{"a negative rate", tenant("arrival: {process: constant, rate: -2}"), []string{":4: tenants[0].arrival.rate: rate -2"}},
		{"a rate that is no number", tenant("arrival: {process: constant, rate: .nan}"), []string{":4: tenants[0].arrival.rate: \".nan\" is no number"}},
		{"a rate in words", tenant("arrival: {process: constant, rate: fast}"), []string{":4: tenants[0].arrival.rate: \"fast\" is no number"}},
		{"gamma without cv", tenant("arrival: {process: gamma, rate: 1}"), []string{":4: tenants[0].arrival.cv: cv 0 is not"}},
		{"poisson with cv", tenant("arrival: {process: poisson, rate: 1, cv: 2}"), []string{":4: tenants[0].arrival.cv: poisson has no cv"}},
		{"poisson with workers", tenant("arrival: {process: poisson, rate: 1, workers: 2}"), []string{"arrival.workers: poisson has no workers"}},
		{"closed without workers", tenant("arrival: {process: closed}"), []string{":4: tenants[0].arrival.workers: 0 workers"}},
		{"closed with a rate", tenant("arrival: {process: closed, workers: 1, rate: 3}"), []string{":4: tenants[0].arrival.rate: a closed loop has no rate"}},
		{"an unknown distribution", tenant("promptTokens: {zipf: 2}"), []string{":4: tenants[0].promptTokens.zipf: unknown field: use fixed", "promptTokens: no length"}},
		{"two distributions", tenant("promptTokens: {fixed: 2, uniform: {min: 1, max: 2}}"), []string{":4: tenants[0].promptTokens: more than one"}},
		{"a bare number as length", tenant("promptTokens: 100"), []string{":4: tenants[0].promptTokens: \"100\" where fields belong: use fixed"}},
		{"a length of zero", tenant("promptTokens: {fixed: 0}"), []string{":4: tenants[0].promptTokens.fixed: 0 tokens"}},
		{"a fraction of a token", tenant("promptTokens: {fixed: 1.5}"), []string{":4: tenants[0].promptTokens.fixed: \"1.5\" is no whole number"}},
		{"min above max", tenant("outputTokens: {uniform: {min: 5, max: 2}}"), []string{":4: tenants[0].outputTokens.uniform.max: max 2"}},
		{"a mean outside the bounds", tenant("outputTokens: {lognormal: {mean: 50, cv: 1, min: 1, max: 20}}"), []string{"lognormal.mean: mean 50 is outside"}},
		{"a lognormal without cv", tenant("outputTokens: {lognormal: {mean: 5, min: 1, max: 20}}"), []string{"lognormal.cv: cv 0"}},
		{"maxTokens of zero", tenant("maxTokens: 0"), []string{":4: tenants[0].maxTokens: 0 is not"}},
		{"a wrong boolean", tenant("stream: yes"), []string{":4: tenants[0].stream: \"yes\" is no boolean"}},
		{"a full path", tenant("path: /v1/completions"), []string{":4: tenants[0].path: unknown path"}},
		{"start after the end", tenant("start: 10s"), []string{":4: tenants[0].start: 10s is not"}},
		{"stop after the end", tenant("stop: 11s"), []string{":4: tenants[0].stop: 11s is not"}},
		{"stop of zero", tenant("stop: 0s"), []string{":4: tenants[0].stop: 0s would send nothing"}},
		{"stop before start", tenant("start: 5s\n  stop: 4s"), []string{":5: tenants[0].stop: stop 4s is not after start 5s"}},
		{"a fraction of nothing", tenant("cancelFraction: 0.5"), []string{":4: tenants[0].cancelFraction: cancelFraction without cancelAfter"}},
		{"a fraction above 1", tenant("cancelFraction: 1.5\n  cancelAfter: 1s"), []string{":4: tenants[0].cancelFraction: 1.5 is not"}},
		{"a fraction of zero", tenant("cancelFraction: 0\n  cancelAfter: 1s"), []string{":4: tenants[0].cancelFraction: cancelAfter with a cancelFraction of 0"}},
		{"several at once, by line", "name: n\nduration: -1s\ntenants:\n- name: a\n  arrival: {process: poisson, rate: 0}\n  promptTokens: {fixed: x}\n  outputTokens: {fixed: 1}\n  extra: 1\n",
			[]string{"w.yaml:2: duration", "w.yaml:5: tenants[0].arrival.rate", "w.yaml:6: tenants[0].promptTokens.fixed", "w.yaml:8: tenants[0].extra"}},
	} {
		t.Run(row.why, func(t *testing.T) {
			spec, err := Parse("w.yaml", []byte(row.file))
			if err == nil {
				t.Fatalf("accepted as %+v:\n%s", spec, row.file)
			}
			got := strings.Split(err.Error(), "\n")
			if len(got) != len(row.want) {
				t.Fatalf("%d errors, want %d:\n%v", len(got), len(row.want), err)
			}
			for i, want := range row.want {
				if !strings.HasPrefix(got[i], "w.yaml:") || !strings.Contains(got[i], want) {
					t.Errorf("error %d is\n  %s\nwant it to contain\n  %s", i, got[i], want)
				}
			}
		})
	}
}

func TestTooLargeAFileIsRefusedBeforeParsing(t *testing.T) {
	if _, err := Parse("w.yaml", make([]byte, MaxBytes+1)); err == nil || !strings.Contains(err.Error(), "split it") {
		t.Errorf("got %v", err)
	}
}

func TestValidateNamesThePlaceInASpecBuiltInCode(t *testing.T) {
	err := Spec{Name: "n", Duration: time.Second, Tenants: []Tenant{{Name: "a"}}}.Validate()
	if err == nil || !strings.Contains(err.Error(), `workload "n": tenants[0].arrival.process`) {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("a: &a [*a]\ntenants: *a\n"))
	f.Add([]byte("tenants: [{name: ~}]\n--- \n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := Parse("f", data)
		if err == nil && spec.Validate() != nil {
			t.Errorf("accepted an invalid spec: %v", spec.Validate())
		}
	})
}
