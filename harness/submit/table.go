package submit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/report"
)

// The table of a results folder stands in its README.md between these lines; the rest of that file is written by hand.
const (
	tableStart = "<!-- table of reports, written by weir results-table -->"
	tableEnd   = "<!-- end of the table of reports -->"
)

// WriteTable writes the table of all submissions under a results folder into its README.md, and makes that file where there is none.
func WriteTable(root string) error {
	path := filepath.Join(root, ReadmeFile)
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = []byte("# Results\n\n"+tableStart+"\n"+tableEnd+"\n"), nil
	}
	if err != nil {
		return err
	}
	text, _, err := withTable(root, old)
	if err != nil || bytes.Equal(text, old) && exists(path) {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// checkTable says whether the table of a results folder is the one that WriteTable writes; false where the folder has none.
func (s Suite) checkTable(root string) (Finding, bool, error) {
	path := filepath.Join(root, ReadmeFile)
	f := Finding{Path: path}
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Contains(old, []byte(tableStart)) {
		return f, false, nil
	}
	if err != nil {
		return f, false, err
	}
	text, n, err := withTable(root, old)
	switch {
	case err != nil:
		f.problem("%v", err)
	case !bytes.Equal(text, old):
		f.problem("the table of reports is out of date or was edited, from line %d: weir results-table %s writes it again", differs(text, old), root)
	default:
		f.Says = fmt.Sprintf("the table has every submission (%d)", n)
	}
	return f, true, nil
}

// withTable puts the table between the two lines of a README and gives the number of its rows.
func withTable(root string, old []byte) ([]byte, int, error) {
	before, rest, ok := strings.Cut(string(old), tableStart+"\n")
	_, after, closed := strings.Cut(rest, tableEnd+"\n")
	if !ok || !closed {
		return nil, 0, fmt.Errorf("%s: put these two lines where the table shall stand:\n%s\n%s", filepath.Join(root, ReadmeFile), tableStart, tableEnd)
	}
	table, n, err := tableOf(root)
	return []byte(before + tableStart + "\n" + table + tableEnd + "\n" + after), n, err
}

type placed struct {
	folder string // relative to the results folder, with slashes
	Submission
}

// tableOf lists the submissions under a results folder, by suite version and name.
func tableOf(root string) (string, int, error) {
	var all []placed
	var errs []error
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != SubmissionFile {
			return err
		}
		sub, err := readSubmission(filepath.Dir(p))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", filepath.Dir(p), err))
			return nil
		}
		rel, err := filepath.Rel(root, filepath.Dir(p))
		all = append(all, placed{filepath.ToSlash(rel), sub})
		return err
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return "", 0, err
	}
	slices.SortFunc(all, func(a, b placed) int { return strings.Compare(a.folder, b.folder) })
	if len(all) == 0 {
		return "No report has been submitted yet.\n", 0, nil
	}
	var b strings.Builder
	b.WriteString("| implementation | version | suite | contract, level | environment | verdict | figures | evidence |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range all {
		c, at := s.Implementation, "in the folder"
		if s.Evidence.Archive == "" {
			at = "[elsewhere](<" + s.Evidence.URL + ">)"
		}
		lit := report.Literal
		fmt.Fprintf(&b, "| [%s %s](%s/%s) | %s | %s | %s, %s | %s | %s | %s | %s |\n", lit(c.Organization), lit(c.Project), s.folder, ReadmeFile, lit(c.Version),
			lit(s.Suite.Version), lit(s.Profile), lit(s.Level), lit(s.Environment), lit(s.Result.Verdict), s.Result.Counts(), at)
	}
	return b.String(), len(all), nil
}
