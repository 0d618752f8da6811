package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

func TestPlay(t *testing.T) {
	out, err := played(t, faked(t),
		sut.AsyncStep{Op: sut.AsyncListen, List: "results"},
		sut.AsyncStep{Op: sut.AsyncAnswer, Answers: []sut.AsyncReply{{IDs: []string{"bad"}, Statuses: []int{400}}, {IDs: []string{"kept"}, Hold: true}}},
		sut.AsyncStep{Op: sut.AsyncStart, Mark: "up", Setup: as("serves", "--up", "$UPSTREAM_a")},
		sut.AsyncStep{Op: sut.AsyncSubmit, Mark: "in", Queue: "q", Messages: []sut.AsyncMessage{{ID: "m1"}, {ID: "bad"}, {ID: "kept"}}},
		sut.AsyncStep{Op: sut.AsyncResults, Mark: "two", Count: 2},
		sut.AsyncStep{Op: sut.AsyncHeld, Mark: "held", Count: 1, IDs: []string{"kept"}},
		sut.AsyncStep{Op: sut.AsyncRelease, Mark: "free", Count: 1},
		sut.AsyncStep{Op: sut.AsyncResults, Mark: "three", Count: 3},
		sut.AsyncStep{Op: sut.AsyncScrape, Mark: "page"},
		sut.AsyncStep{Op: sut.AsyncSize, Mark: "empty", Names: []string{"q", "results"}},
		sut.AsyncStep{Op: sut.AsyncSignal, Mark: "term", Signal: "TERM"},
		sut.AsyncStep{Op: sut.AsyncEnded, Mark: "ended"},
	)
	if err != nil {
		t.Fatal(err)
	}
	run := out.Run()
	for _, s := range run.Steps {
		if !s.OK {
			t.Errorf("%s %s: %s", s.Op, s.Mark, s.Detail)
		}
	}
	statuses := map[string]int{}
	attempts := 0
	for _, o := range run.Observations {
		switch {
		case o.Result != nil:
			statuses[o.Result.ID] = o.Result.Status
		case o.Attempt != nil:
			attempts++
			if o.Attempt.Ending != evidence.Answered || o.Attempt.Upstream != "a" {
				t.Errorf("an attempt: %+v", o.Attempt)
			}
		}
	}
	if want := (map[string]int{"m1": 200, "bad": 400, "kept": 200}); fmt.Sprint(statuses) != fmt.Sprint(want) || attempts != 3 {
		t.Errorf("results %v of %d attempts, want %v", statuses, attempts, want)
	}
	if len(run.Processes) != 1 || run.Processes[0].ExitCode != 0 || !strings.Contains(run.Processes[0].Text, "flags [\"--up\" \"http://127.0.0.1:") {
		t.Errorf("how it ended: %+v", run.Processes)
	}
	if len(run.Samples) != 1 || run.Samples[0].Name != "llm_d_async_up" || run.Samples[0].Mark != "page" || run.Samples[0].Source != "p" {
		t.Errorf("its page: %+v", run.Samples)
	}
	if !strings.Contains(out.files["p-transport.json"], `"broker":"127.0.0.1:`) || !strings.HasPrefix(out.files["p.log"], "$ ") {
		t.Errorf("files: %v", out.files)
	}
}

// One that ends at once is seen to, what it left behind is ended although it has left the group, and nobody waits for its work as long as
// for that of one that runs.
func TestPlayOfOneThatEndsAtOnce(t *testing.T) {
	c := clock.NewReal()
	out, err := played(t, faked(t),
		sut.AsyncStep{Op: sut.AsyncListen, List: "results"},
		sut.AsyncStep{Op: sut.AsyncStart, Mark: "up", Setup: as("ends")},
		sut.AsyncStep{Op: sut.AsyncSubmit, Mark: "in", Queue: "q", Messages: []sut.AsyncMessage{{ID: "m1"}}},
		sut.AsyncStep{Op: sut.AsyncResults, Mark: "done", Count: 1, Limit: time.Hour},
		sut.AsyncStep{Op: sut.AsyncEnded, Mark: "ended"})
	if err != nil {
		t.Fatal(err)
	}
	if s := out.step(t, "up"); s.OK || !strings.Contains(s.Detail, `the processor is "ended", not "ready": exit status 7`) {
		t.Errorf("its start: %+v", s)
	}
	if s := out.step(t, "done"); s.OK || !strings.Contains(s.Detail, "0 of 1 results came") || c.Now() > time.Minute {
		t.Errorf("its work: %+v", s)
	}
	if ps := out.Run().Processes; len(ps) != 1 || ps[0].ExitCode != 7 {
		t.Errorf("its end: %+v", ps)
	}
	if child := pids(t, out.files["p.log"], "child"); len(child) != 1 || runs(child[0]) {
		t.Errorf("what it left behind runs: %v", child)
	}
}

// A processor that did not end when it should have is ended before its place is taken, and at the end of the script: also while suspended.
func TestPlayEndsWhatItStarted(t *testing.T) {
	out, err := played(t, faked(t),
		sut.AsyncStep{Op: sut.AsyncStart, Mark: "up", Setup: as("stays")},
		sut.AsyncStep{Op: sut.AsyncSignal, Signal: "TERM"},
		sut.AsyncStep{Op: sut.AsyncEnded, Mark: "ended", Limit: 20 * time.Millisecond},
		sut.AsyncStep{Op: sut.AsyncStart, Mark: "again"},
		sut.AsyncStep{Op: sut.AsyncStart, Mark: "other", Who: "p2", Setup: as("serves")},
		sut.AsyncStep{Op: sut.AsyncSignal, Signal: "STOP"},
		sut.AsyncStep{Op: sut.AsyncSignal, Who: "p2", Signal: "STOP"})
	if err != nil {
		t.Fatal(err)
	}
	if out.step(t, "ended").OK || !out.step(t, "again").OK || !out.step(t, "other").OK {
		t.Errorf("%+v", out.Run().Steps)
	}
	all := append(pids(t, out.files["p.log"], "pid"), pids(t, out.files["p2.log"], "pid")...)
	if len(all) != 3 {
		t.Errorf("logs: %v", out.files)
	}
	for _, pid := range all {
		if runs(pid) {
			t.Errorf("%d runs", pid)
		}
	}
}

// Starts of a matrix run side by side, and share what their tokens name.
func TestTries(t *testing.T) {
	var tries []sut.AsyncTrial
	for i := range 2 * parallelTries {
		mode := []string{"serves", "ends"}[i%2]
		s := as(mode, "--file", "$FILE_x")
		s.Files = map[string]string{"x": "$BROKER2 $CA $OTLP $UPSTREAM_b"}
		s.Env["REDIS_URL"] = "redis://$TLSBROKER"
		tries = append(tries, sut.AsyncTrial{Case: fmt.Sprintf("%s-%d", mode, i), Setup: *s})
	}
	out, err := played(t, faked(t), sut.AsyncStep{Op: sut.AsyncTry, Mark: "tried", Tries: tries})
	if err != nil {
		t.Fatal(err)
	}
	ps := out.Run().Processes
	for i, p := range ps {
		if serves := i%2 == 0; p.Case != tries[i].Case || p.Started != serves || serves && p.ExitCode != -1 || !serves && p.ExitCode != 7 {
			t.Errorf("%+v", p)
		}
	}
	if len(ps) != len(tries) {
		t.Errorf("%d of %d", len(ps), len(tries))
	}
}

func TestPlayGivesUp(t *testing.T) {
	for _, c := range []struct {
		says  string
		steps []sut.AsyncStep
		want  string
	}{
		{"an unknown operation", []sut.AsyncStep{{Op: "dance", Mark: "x"}}, `step 0 (dance x): unknown operation "dance"`},
		{"an unknown mode of the broker", []sut.AsyncStep{{Op: sut.AsyncBroker, Mode: "gone"}}, `unknown mode "gone"`},
		{"an unknown token", []sut.AsyncStep{{Op: sut.AsyncStart, Setup: as("serves", "$NOBODY", "$NOTHING")}}, "$NOTHING: unknown token"},
		{"a signal to nobody", []sut.AsyncStep{{Op: sut.AsyncSignal, Signal: "TERM"}}, "it was not started"},
		{"an unknown signal", []sut.AsyncStep{{Op: sut.AsyncStart, Setup: as("serves")}, {Op: sut.AsyncSignal, Signal: "HUP"}}, `signal "HUP"`},
		{"an upstream that nobody names", []sut.AsyncStep{{Op: sut.AsyncUpstream, Upstream: "z", Mode: "down"}}, "upstream z: the script does not use it"},
		{"a case with an unknown token", []sut.AsyncStep{{Op: sut.AsyncTry, Tries: []sut.AsyncTrial{{Case: "c", Setup: *as("serves", "$NOTHING")}}}}, `case "c": $NOTHING: unknown token`},
	} {
		if _, err := played(t, faked(t), c.steps...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.says, err, c.want)
		}
	}
	nobody, err := Parse("./no-such-processor {{.Config}} {{.MetricsPort}} {{.HealthPort}}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := played(t, New(Options{Command: nobody}), sut.AsyncStep{Op: sut.AsyncStart, Setup: as("serves")}); err == nil || !strings.Contains(err.Error(), "no-such-processor") {
		t.Errorf("a program that is not there: %v", err)
	}
}

// A script that is broken off leaves nothing behind either.
func TestPlayBrokenOff(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	out := &seen{Recorder: evidence.NewRecorder("x"), files: map[string]string{}}
	t.Setenv("TMPDIR", t.TempDir())
	done := make(chan error, 1)
	go func() {
		done <- faked(t).Play(ctx, sut.Script{Async: []sut.AsyncStep{{Op: sut.AsyncStart, Setup: as("stays")}, {Op: sut.AsyncQuiet, Quiet: time.Hour}, {Op: sut.AsyncQuiet}}}, out)
	}()
	wait, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	for len(out.Run().Steps) == 0 && wait.Err() == nil {
		clock.Sleep(wait, time.Millisecond)
	}
	cancel(errors.New("told to end"))
	if err := <-done; err == nil || !strings.Contains(err.Error(), "step 2 (quiet ): told to end") {
		t.Errorf("%v", err)
	}
	if pid := pids(t, out.files["p.log"], "pid"); len(pid) != 1 || runs(pid[0]) {
		t.Errorf("it runs: %v", pid)
	}
}

func TestBrokerThatIsNone(t *testing.T) {
	for program, want := range map[string]string{"false": "exit status 1", "no-such-broker": "no-such-broker"} {
		c := clock.NewReal()
		if _, err := newBroker(program, t.TempDir()); err == nil || !strings.Contains(err.Error(), want) || c.Now() > 4*time.Second {
			t.Errorf("%s: %v after %s, want %q at once", program, err, c.Now(), want)
		}
	}
}

func TestTokens(t *testing.T) {
	r, err := newRig(Options{}, evidence.NewRecorder("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	p := &program{name: "p", dir: "folder", metrics: 11, health: 12}
	b := r.brokers[0].proxy.addr
	for _, c := range []struct{ says, text, want string }{
		{"a broker", "redis://$BROKER/1", "redis://" + b + "/1"},
		{"ports and files of a processor", "$METRICS_PORT $HEALTH_PORT $FILE_pools2", "11 12 folder/pools2"},
		{"what is no token stays", "$5 $ $q cost$ $ lower", "$5 $ $q cost$ $ lower"},
	} {
		if got, err := r.expand(t.Context(), p, c.text); err != nil || got != c.want {
			t.Errorf("%s: %q %v, want %q", c.says, got, err, c.want)
		}
	}
	for _, c := range []struct{ says, text, want string }{
		{"a file of nobody", "$FILE_x", "$FILE_x: a file belongs to a processor"},
		{"a port of nobody", "$METRICS_PORT", "$METRICS_PORT: no processor runs"},
		{"each that is unknown is named", "$NOPE $BROKER $NEITHER", "$NOPE: unknown token\n$NEITHER: unknown token"},
	} {
		if _, err := r.expand(t.Context(), nil, c.text); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %q", c.says, err, c.want)
		}
	}
	get := func(text string) string {
		t.Helper()
		v, err := r.expand(t.Context(), nil, text)
		if err != nil {
			t.Error(err)
		}
		return v
	}
	for _, same := range []string{"$UPSTREAM_a", "$BROKER2", "$TLSBROKER", "$TLS_a", "$PROM", "$PAGE", "$OTLP", "$PUBSUB", "$CA", "$CERT", "$KEY"} {
		if get(same) != get(same) {
			t.Errorf("%s is made twice", same)
		}
	}
	if get("http://$ADDRESS_a") != get("$UPSTREAM_a") || get("$UPSTREAM_a") == get("$UPSTREAM_b") || get("$NOBODY") == get("$NOBODY") || get("$BROKER") == get("$BROKER2") {
		t.Error("what is the same is told apart, or the reverse")
	}
	if u := get("$TLS_a"); !strings.HasPrefix(u, "https://") || u == get("$MTLS_a") {
		t.Errorf("an upstream with TLS: %s", u)
	}
	if _, err := r.expandAll(t.Context(), nil, []string{"$BROKER", "$NOPE", "$FILE_x"}); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("of several texts: %v", err)
	}
}

func TestAssemble(t *testing.T) {
	flags := []string{"--a", "1", "--b"}
	for _, c := range []struct {
		says    string
		words   []string
		without []string
		want    string
	}{
		{"flags come at the end", []string{"p", "--config", "c", "--port=1"}, nil, "p --config c --port=1 --a 1 --b"},
		{"or in their place", []string{"p", "--first", here, "--last"}, nil, "p --first --a 1 --b --last"},
		{"a flag whose value is left out is left out", []string{"p", "--config", left, "--port", "1"}, nil, "p --port 1 --a 1 --b"},
		{"joined to its value too", []string{"p", "--config=" + left, "--port", "1"}, nil, "p --port 1 --a 1 --b"},
		{"and with more around the value", []string{"p", "--config", "file:" + left}, nil, "p --a 1 --b"},
		{"what is no flag stays", []string{"p", left, "--port", "1"}, nil, "p --port 1 --a 1 --b"},
		{"a flag that has its value stays", []string{"p", "--port=1", left}, nil, "p --port=1 --a 1 --b"},
		{"without a flag and its value", []string{"p", "--auth", "no", "--port", "1"}, []string{"--auth"}, "p --port 1 --a 1 --b"},
		{"without a joined one", []string{"p", "--auth=no", "word"}, []string{"--auth"}, "p word --a 1 --b"},
		{"without one that has no value", []string{"p", "--auth", "--port", "1"}, []string{"--auth"}, "p --port 1 --a 1 --b"},
		{"without the last one", []string{"p", "--auth"}, []string{"--auth"}, "p --a 1 --b"},
		{"another flag that begins alike stays", []string{"p", "--auth-mode", "x"}, []string{"--auth"}, "p --auth-mode x --a 1 --b"},
		{"further flags are no value", []string{"p", "--auth", here, "--last"}, []string{"--auth"}, "p --a 1 --b --last"},
		{"without a flag whose value is left out", []string{"p", "--config", left, "x"}, []string{"--config"}, "p x --a 1 --b"},
	} {
		if got := strings.Join(assemble(c.words, flags, c.without), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.says, got, c.want)
		}
	}
	if got := assemble([]string{"p", here}, nil, nil); !slices.Equal(got, []string{"p"}) {
		t.Errorf("no flags: %q", got)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ says, text, err string }{
		{"all that is needed", "p {{.Config}} {{.MetricsPort}} {{.HealthPort}}", ""},
		{"a place for flags", "p {{.Flags}} --c={{.Config}} {{.MetricsPort}} {{.HealthPort}}", ""},
		{"flags inside a word", "p --x={{.Flags}} {{.Config}} {{.MetricsPort}} {{.HealthPort}}", "must be one of its own"},
		{"no configuration", "p {{.MetricsPort}} {{.HealthPort}}", "must use {{.Config}}"},
		{"no metrics", "p {{.Config}} {{.HealthPort}}", "must use {{.MetricsPort}}"},
		{"no health", "p {{.Config}} {{.MetricsPort}}", "must use {{.HealthPort}}"},
		{"a placeholder of a picker", "p {{.GRPCPort}}", "unknown placeholder: use {{.Config}}, {{.MetricsPort}}, {{.HealthPort}}, {{.Flags}}"},
		{"nothing", "", "empty"},
	} {
		if _, err := Parse(c.text); c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", c.says, err, c.err)
		}
	}
}

// The command line of a processor under setups.
func TestArgv(t *testing.T) {
	command, err := Parse("p --transport-config-file {{.Config}} --m={{.MetricsPort}} --h {{.HealthPort}}")
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRig(Options{Command: command}, evidence.NewRecorder("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	p := &program{name: "p", dir: r.dir, metrics: 11, health: 12}
	for _, c := range []struct {
		says  string
		setup sut.AsyncSetup
		want  string
	}{
		{"a document in a file", sut.AsyncSetup{Config: "{}"}, "p --transport-config-file $DIR/transport.json --m=11 --h 12 --transport redis-sortedset"},
		{"inline", sut.AsyncSetup{Config: "{}", Inline: true}, "p --m=11 --h 12 --transport redis-sortedset --transport-config {}"},
		{"both", sut.AsyncSetup{Config: "{}", Inline: true, Flags: []string{"--transport-config-file", "x"}}, "p --m=11 --h 12 --transport redis-sortedset --transport-config {} --transport-config-file x"},
		{"none, another transport", sut.AsyncSetup{Transport: "redis-pubsub", Flags: []string{"-v", "3"}}, "p --m=11 --h 12 --transport redis-pubsub -v 3"},
		{"no transport", sut.AsyncSetup{Transport: "none", Without: []string{"--h"}}, "p --m=11"},
	} {
		words, err := r.argv(t.Context(), p, c.setup)
		if got := strings.ReplaceAll(strings.Join(words, " "), r.dir, "$DIR"); err != nil || got != c.want {
			t.Errorf("%s: %q %v, want %q", c.says, got, err, c.want)
		}
	}
}
