package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/llm-weir/weir/harness/cli"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weir": cli.Main})
}

func TestCommandLine(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", Cmds: map[string]func(*testscript.TestScript, bool, []string){
		// status CODE COMMAND...: the command must end with that status, with ! with another one.
		"status": status,
		// replace FILE OLD NEW: change the first occurrence.
		"replace": replace,
		// processes N: so many have this script's folder in their environment.
		"processes": processes,
	}})
}

// What is published holds: every hash, verdict and text of every submission, and the table of them. Evidence that lies elsewhere and
// texts of other versions stay open.
func TestPublishedResults(t *testing.T) {
	var out bytes.Buffer
	if got := cli.Run([]string{"verify", "../../results"}, &out, &out); got != cli.ExitPass && got != cli.ExitInconclusive {
		t.Errorf("weir verify results: exit status %d (make results says what to do)\n%s", got, out.String())
	}
}

func status(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: status CODE COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = exitCode(err)
	}
	if (got == args[0]) == neg {
		ts.Fatalf("exit status %s, want %s%s (%v)", got, map[bool]string{true: "another than "}[neg], args[0], err)
	}
}

func processes(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: processes N")
	}
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	ts.Check(err)
	var found []string
	for _, f := range files {
		environ, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), []byte("\x00WORK="+ts.Getenv("WORK")+"\x00")) {
			continue // it has ended meanwhile, or belongs to somebody else
		}
		cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		found = append(found, string(bytes.ReplaceAll(cmdline, []byte{0}, []byte(" "))))
	}
	if fmt.Sprint(len(found)) != args[0] {
		ts.Fatalf("%d processes of this script run, want %s: %q", len(found), args[0], found)
	}
}

func exitCode(err error) string {
	text := err.Error() // "exit status N" or "unexpected command failure"
	const prefix = "exit status "
	if i := len(prefix); len(text) > i && text[:i] == prefix {
		return text[i:]
	}
	return text
}

func replace(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: replace FILE OLD NEW")
	}
	name := ts.MkAbs(args[0])
	b, err := os.ReadFile(name)
	ts.Check(err)
	out := []byte(replaceFirst(string(b), args[1], args[2]))
	if string(out) == string(b) {
		ts.Fatalf("%s does not contain %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(name, out, 0o644))
}

func replaceFirst(s, old, with string) string {
	for i := 0; i+len(old) <= len(s); i++ {
		if s[i:i+len(old)] == old {
			return s[:i] + with + s[i+len(old):]
		}
	}
	return s
}
