package submit

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/evidence"
)

func TestVersions(t *testing.T) {
	for v, ok := range map[string]bool{
		"v1.2.3": true, "1.2": true, "0.10.0-rc.1": true, "v0.9.0+build.5": true, "2026-09-01": true, "epp/v0.3.0": true, "router-2026.1": true, "rhoai-3.4": true, "v3": true,
		"3f2a91c": true, "1234567": true, strings.Repeat("ab", 20): true, "sha256:" + strings.Repeat("0f", 32): true,
		"": false, "latest": false, "LATEST": false, "main": false, "master": false, "HEAD": false, "v1.2-latest": false, "main-3f2a91c": false, "nightly-2026-09-01": false,
		"release-1.2": false, "release/1.2": false, "origin/v1": false, "feature/x-1": false, "fix/123": false, "refs/heads/x1": false, "TO" + "DO": false, "v1-TO" + "DO": false,
		"tbd": false, "unknown": false, "1.0.0-SNAPSHOT": false, "1.0.0-dirty": false, "1.0.0-dev": false, "v1.2.3\n": false, " v1": false, "my-branch": false, "v1 or so": false,
		"v1\u202e2": false, strings.Repeat("1", 101): false,
	} {
		if what := (Claim{Version: v}).version(); (what == "") != ok {
			t.Errorf("version %q: %q", v, what)
		}
	}
}

func TestAddressesAndContacts(t *testing.T) {
	for u, ok := range map[string]bool{
		"https://github.com/o/p": true, "http://example.org": true, "": false, "github.com/o/p": false, "ftp://example.org": false, "https://": false, "https://localhost/x": false,
		"http://127.0.0.1/x": false, "https://user:pw@example.org": false, "javascript:alert(1)": false, "https://example.org/ x": false, "https://example.org/<b>": false, "https:///x": false, "TO" + "DO": false,
	} {
		if what := (Claim{URL: u}).address(); (what == "") != ok {
			t.Errorf("url %q: %q", u, what)
		}
	}
	for c, ok := range map[string]bool{
		"a@example.org": true, "@team": true, "@org/team": true, "https://example.org/contact": true, "": false, "somebody": false, "A B <a@example.org>": false, "@": false, "TO" + "DO": false, "a@b@c": false,
	} {
		if what := (Claim{Contact: []string{"@first", c}}).contacts(); (what == "") != ok {
			t.Errorf("contact %q: %q", c, what)
		}
	}
	if (Claim{}).contacts() == "" {
		t.Error("nobody to ask, and nothing said")
	}
}

func TestClaimIsCompletedFromTheRun(t *testing.T) {
	m := evidence.Manifest{Profile: "p", Implementation: evidence.Implementation{Organization: "o", Project: "q", Version: "v1", URL: "https://q.example.org", Contact: []string{"@q"}}}
	c, bad := Claim{}.complete(m)
	if len(bad) > 0 || c.Organization != "o" || c.Contact[0] != "@q" || c.folder(m) != "o-q-v1-p" {
		t.Errorf("%+v, %v", c, bad)
	}
	// The name of a program is a guess, and no contradiction.
	m.Implementation.Organization, m.Implementation.Project = unknown, "epp"
	if _, bad := (Claim{Organization: "x", Project: "y", Contact: []string{"@x"}}).complete(m); len(bad) > 0 {
		t.Errorf("%v", bad)
	}
}

func TestSlugs(t *testing.T) {
	for s, want := range map[string]string{"Llm-D": "llm-d", "a/b c": "a-b-c", "../..": "", "..": "", "v1.2.3+x": "v1.2.3-x", "Ünï": "n", "-a-": "a", ".git": "git", "a\x00b": "a-b"} {
		if got := slug(s); got != want || filepath.Base("x/"+got) != got && got != "" {
			t.Errorf("slug(%q) = %q, want %q", s, got, want)
		}
	}
}

// Whatever a name holds, the badge is one piece of XML with nothing in it that runs or is fetched.
func TestBadgeIsSafe(t *testing.T) {
	hostile := `</text><script>alert(1)</script>"'&<image href="http://x.example/"/>` + "\x00\x1b\u202e"
	for _, v := range []string{"pass", "fail", "error", "inconclusive", hostile} {
		b := badge(Submission{Suite: SuiteName{Version: hostile}, Profile: hostile, Level: "core", Result: Figures{Verdict: v, Passed: 3, Applicable: 4, NotApplicable: 1}})
		d := xml.NewDecoder(strings.NewReader(string(b)))
		texts := ""
		for {
			tok, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, b)
			}
			switch e := tok.(type) {
			case xml.StartElement:
				if !slices.Contains([]string{"svg", "title", "rect", "path", "g", "text"}, e.Name.Local) {
					t.Errorf("element %s", e.Name.Local)
				}
				for _, a := range e.Attr {
					if strings.HasPrefix(a.Name.Local, "on") || strings.Contains(a.Name.Local, "href") || a.Name.Local == "style" {
						t.Errorf("attribute %s", a.Name.Local)
					}
				}
			case xml.CharData:
				texts += string(e)
			}
		}
		if !strings.Contains(texts, "3 of 4 pass, 1 not applicable") {
			t.Errorf("the badge says %q", texts)
		}
		if green := strings.Contains(string(b), "#1a7f37"); green != (v == "pass") {
			t.Errorf("verdict %q is green: %v", v, green)
		}
	}
}

func TestTable(t *testing.T) {
	root := t.TempDir()
	s := Suite{}
	put := func(text string) {
		if err := os.WriteFile(filepath.Join(root, ReadmeFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("mine\n")
	if err := WriteTable(root); err == nil || !strings.Contains(err.Error(), tableStart) {
		t.Errorf("a README without a place for the table: %v", err)
	}
	if _, ok, err := s.checkTable(root); ok || err != nil {
		t.Errorf("a folder without a table has none to check: %v %v", ok, err)
	}
	put("before\n" + tableStart + "\nold\n" + tableEnd + "\nafter\n")
	if f, ok, err := s.checkTable(root); !ok || err != nil || len(f.Problems) != 1 || !strings.Contains(f.Problems[0], "line 3") {
		t.Errorf("a table that is out of date: %+v %v %v", f, ok, err)
	}
	if err := WriteTable(root); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, ReadmeFile))
	if err != nil || !strings.HasPrefix(string(text), "before\n") || !strings.HasSuffix(string(text), "\nafter\n") || strings.Contains(string(text), "old") {
		t.Errorf("%v: %s", err, text)
	}
	if f, ok, err := s.checkTable(root); !ok || err != nil || len(f.Problems) > 0 {
		t.Errorf("a table just written: %+v %v %v", f, ok, err)
	}
}
