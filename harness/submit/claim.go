package submit

import (
	"cmp"
	"fmt"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llm-weir/weir/harness/evidence"
)

// Claim is who submits, and for what.
type Claim struct {
	Organization string   `yaml:"organization"`
	Project      string   `yaml:"project"`
	Version      string   `yaml:"version"`
	URL          string   `yaml:"url"`
	Contact      []string `yaml:"contact"`
}

// Longest texts that somebody may put into a submission, in characters.
const (
	shortText = 100
	longText  = 500
)

var (
	placeholders = []string{"to" + "do", "tbd", "fix" + "me", "x" + "xx", "unknown", "none", "n/a", "-", "?", "changeme", "placeholder"}
	// moving are names that mean another build tomorrow.
	moving = []string{"latest", "head", "tip", "main", "master", "trunk", "develop", "development", "dev", "devel", "edge", "nightly", "canary",
		"stable", "testing", "next", "current", "snapshot", "rolling", "dirty", "changes", "local", "wip"}
	tag = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9]*[-_/])*[vV]?\d+(\.\d+)*([-+._]?[A-Za-z0-9]+)*([-+.][A-Za-z0-9]+)*$`)
	// commit is a full or a shortened one; an image may be named by its digest.
	commit = regexp.MustCompile(`^([0-9a-f]{7,40}|[0-9a-f]{64}|sha256:[0-9a-f]{64})$`)
	branch = regexp.MustCompile(`^(refs|heads|origin|upstream|feature|features|feat|fix|bugfix|hotfix|release|releases|user|users|wip|topic|pr|pull)[/_]|^releases?-`)
	words  = regexp.MustCompile(`[A-Za-z]+`)
	handle = regexp.MustCompile(`^@[A-Za-z0-9][A-Za-z0-9_./-]*$`)
	// home is a folder that nobody else has.
	home = regexp.MustCompile(`(^|[^\w./~*-])(/(home|root|Users|work)/|[A-Za-z]:\\)`)
)

// complete takes from the manifest what the claim leaves open and lists everything that is missing, moves or contradicts the run.
func (c Claim) complete(m evidence.Manifest) (Claim, []string) {
	var bad []string
	i := m.Implementation
	// Without a descriptor nobody said who it is: the project is then the name of a program, a guess.
	if nobody(i.Organization) {
		i.Project = ""
	}
	for _, f := range []struct {
		flag string
		said *string
		run  string
	}{{"--organization", &c.Organization, i.Organization}, {"--project", &c.Project, i.Project}, {"--version", &c.Version, i.Version}, {"--url", &c.URL, i.URL}} {
		if nobody(f.run) {
			continue
		}
		if *f.said != "" && *f.said != f.run {
			bad = append(bad, fmt.Sprintf("%s: %q, but the run was of %q: leave the flag out, or certify again with a descriptor (--sut) that says who it is", f.flag, *f.said, f.run))
			continue
		}
		*f.said = f.run
	}
	if len(c.Contact) == 0 {
		c.Contact = i.Contact
	}
	return c, append(bad, c.problems()...)
}

func nobody(name string) bool { return name == "" || name == unknown }

// problems lists what may not be claimed about the claimant.
func (c Claim) problems() []string {
	bad := []string{text("--organization", c.Organization, shortText), text("--project", c.Project, shortText), c.version(), c.address(), c.contacts()}
	if slug(c.Organization) == "" || slug(c.Project) == "" {
		bad = append(bad, "--organization, --project: each needs a letter or digit of ASCII, the folder is named after them")
	}
	return slices.DeleteFunc(bad, func(s string) bool { return s == "" })
}

// text says what is wrong with a text that is printed: nothing, a placeholder, too long, or with characters nobody sees.
func text(flag, s string, limit int) string {
	switch {
	case strings.TrimSpace(s) == "":
		return flag + ": missing"
	case slices.Contains(placeholders, strings.ToLower(strings.TrimSpace(s))):
		return fmt.Sprintf("%s: %q is a placeholder: write the name", flag, s)
	case utf8.RuneCountInString(s) > limit:
		return fmt.Sprintf("%s: longer than %d characters", flag, limit)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || s != strings.TrimSpace(s):
		return fmt.Sprintf("%s: %q has characters that are not printed, or spaces around it", flag, s)
	}
	return ""
}

// version wants a name that means the same build next year.
func (c Claim) version() string {
	if what := text("--version", c.Version, shortText); what != "" {
		return what
	}
	if commit.MatchString(c.Version) {
		return ""
	}
	const fix = ": name a release tag or a commit, which mean the same build next year"
	for _, w := range words.FindAllString(strings.ToLower(c.Version), -1) {
		if slices.Contains(moving, w) || slices.Contains(placeholders, w) {
			return fmt.Sprintf("--version: %q is not one build (%q)", c.Version, w) + fix
		}
	}
	switch {
	case branch.MatchString(strings.ToLower(c.Version)):
		return fmt.Sprintf("--version: %q is the name of a branch", c.Version) + fix
	case !tag.MatchString(c.Version):
		return fmt.Sprintf("--version: %q is neither a version nor a commit", c.Version) + fix
	}
	return ""
}

func (c Claim) address() string {
	switch {
	case strings.TrimSpace(c.URL) == "":
		return "--url: missing: where the project is found, https://..."
	case !webAddress(c.URL):
		return fmt.Sprintf("--url: %q is no address of the web: write https://host/path", c.URL)
	}
	return ""
}

// webAddress tells whether s is an absolute http(s) URL of a host that others can reach, without credentials.
func webAddress(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || text("", s, longText) != "" || strings.ContainsAny(s, " <>\"'`|\\") {
		return false
	}
	h := u.Hostname()
	return strings.Contains(strings.Trim(h, "."), ".") && !strings.HasPrefix(h, "127.") && h != "0.0.0.0"
}

func (c Claim) contacts() string {
	if len(c.Contact) == 0 {
		return "--contact: missing: an e-mail address, a web address or an @handle that answers questions about the submission"
	}
	for _, s := range c.Contact {
		a, err := mail.ParseAddress(s)
		if (err != nil || a.Name != "" || a.Address != s) && !webAddress(s) && !handle.MatchString(s) || text("", s, shortText) != "" {
			return fmt.Sprintf("--contact: %q is no e-mail address, web address or @handle", s)
		}
	}
	return ""
}

// folder names the submission among those of one suite version: who, which build, which contract.
func (c Claim) folder(m evidence.Manifest) string {
	return strings.Join([]string{slug(c.Organization), slug(c.Project), cmp.Or(slug(c.Version), "0"), slug(m.Profile)}, "-")
}

// slug makes a text fit for a folder's name on every system.
func slug(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.':
			b.WriteRune(r)
		default:
			b.WriteByte('-')
		}
	}
	parts := strings.FieldsFunc(b.String(), func(r rune) bool { return r == '-' })
	return strings.Trim(strings.Join(parts, "-"), ".-")
}
