package evidence

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Bundle is a bundle read back from disk.
type Bundle struct {
	Dir      string
	Manifest Manifest
	Runs     []Run // in the manifest's order; scenarios that were not played have an empty Run
}

// SealError is evidence that is not what was sealed.
type SealError struct{ Problems []string }

func (e *SealError) Error() string {
	return "the bundle is not what was sealed: " + strings.Join(e.Problems, "; ") +
		" (judge it all the same with --unsealed; such verdicts certify nothing)"
}

// Open reads a bundle. Unless unsealed it refuses one whose files differ from their recorded hashes (*SealError). A damaged
// line is an error that names file and line.
func Open(dir string, unsealed bool) (*Bundle, error) {
	raw, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		return nil, fmt.Errorf("no bundle in %s: %w", dir, err)
	}
	b := &Bundle{Dir: dir}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&b.Manifest); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, ManifestFile), err)
	}
	if b.Manifest.Schema != Schema {
		return nil, fmt.Errorf("%s: schema %q is not %q: use the weir version that wrote it", filepath.Join(dir, ManifestFile), b.Manifest.Schema, Schema)
	}
	if !unsealed {
		if err := verifySeal(dir, raw, b.Manifest); err != nil {
			return nil, err
		}
	}
	return b, b.readRuns()
}

// verifySeal compares every file with its recorded hash and looks for record files that nobody sealed.
func verifySeal(dir string, manifest []byte, m Manifest) error {
	var bad []string
	sum := sha256.Sum256(manifest)
	seal, err := os.ReadFile(filepath.Join(dir, SealFile))
	switch {
	case err != nil:
		bad = append(bad, SealFile+" is missing")
	case !strings.HasPrefix(string(seal), hex.EncodeToString(sum[:])):
		bad = append(bad, ManifestFile+" was changed")
	}
	// A bundle may come from anywhere: neither a name nor a link in it may lead to a file outside.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	known := map[string]bool{}
	for _, f := range m.Files {
		known[f.Name] = true
		content, err := root.ReadFile(filepath.FromSlash(f.Name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			bad = append(bad, f.Name+" is missing")
			continue
		case err != nil:
			bad = append(bad, f.Name+" is no file of the bundle: "+err.Error())
			continue
		}
		s := sha256.Sum256(content)
		if hex.EncodeToString(s[:]) != f.SHA256 {
			bad = append(bad, f.Name+" was changed")
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.ndjson"))
	if err != nil {
		return err
	}
	records := slices.Clone(ndjsonFiles)
	for _, path := range found {
		if n := filepath.Base(path); !slices.Contains(records, n) {
			records = append(records, n)
		}
	}
	for _, n := range records {
		if !known[n] {
			bad = append(bad, n+" was never sealed")
		}
	}
	if len(bad) > 0 {
		return &SealError{Problems: bad}
	}
	return nil
}

func (b *Bundle) readRuns() error {
	index := map[string]*Run{}
	b.Runs = make([]Run, len(b.Manifest.Scenarios))
	for i, s := range b.Manifest.Scenarios {
		b.Runs[i].Scenario = s.Name
		index[s.Name] = &b.Runs[i]
	}
	at := func(name string) (*Run, error) {
		if r := index[name]; r != nil {
			return r, nil
		}
		return nil, fmt.Errorf("record of unknown scenario %q", name)
	}
	return errors.Join(
		readLines(b.Dir, ClientFile, func(v Client) error { return add(at, v.Scenario, func(r *Run) { r.Clients = append(r.Clients, v) }) }),
		readLines(b.Dir, BackendFile, func(v Backend) error {
			return add(at, v.Scenario, func(r *Run) { r.Backends = append(r.Backends, v) })
		}),
		readLines(b.Dir, PickerFile, func(v Decision) error {
			return add(at, v.Scenario, func(r *Run) { r.Decisions = append(r.Decisions, v) })
		}),
		readLines(b.Dir, ExchangeFile, func(v Exchange) error {
			return add(at, v.Scenario, func(r *Run) { r.Exchanges = append(r.Exchanges, v) })
		}),
		readLines(b.Dir, SamplesFile, func(v Sample) error { return add(at, v.Scenario, func(r *Run) { r.Samples = append(r.Samples, v) }) }),
		readLines(b.Dir, StepsFile, func(v Step) error { return add(at, v.Scenario, func(r *Run) { r.Steps = append(r.Steps, v) }) }),
		readLines(b.Dir, ProcessFile, func(v Process) error {
			return add(at, v.Scenario, func(r *Run) { r.Processes = append(r.Processes, v) })
		}),
		readLines(b.Dir, ObserveFile, func(v Observation) error {
			return add(at, v.Scenario, func(r *Run) { r.Observations = append(r.Observations, v) })
		}),
	)
}

func add(at func(string) (*Run, error), scenario string, f func(*Run)) error {
	r, err := at(scenario)
	if err == nil {
		f(r)
	}
	return err
}

// readLines decodes one JSON value a line; every bad line is reported, with file and line.
func readLines[T any](dir, name string, each func(T) error) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("evidence file: %w", err)
	}
	defer f.Close()
	var errs []error
	sc := bufio.NewScanner(f)
	sc.Buffer(make([]byte, 64<<10), 64<<20)
	for n := 1; sc.Scan(); n++ {
		var v T
		dec := json.NewDecoder(bytes.NewReader(sc.Bytes()))
		dec.DisallowUnknownFields()
		err := dec.Decode(&v)
		if _, more := dec.Token(); err == nil && more != io.EOF {
			err = errors.New("more than one value on a line")
		}
		if err == nil {
			err = each(v)
		}
		if err != nil && len(errs) < 10 {
			errs = append(errs, fmt.Errorf("%s:%d: %w", filepath.Join(dir, name), n, err))
		}
	}
	if err := sc.Err(); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", filepath.Join(dir, name), err))
	}
	return errors.Join(errs...)
}

// InMemory makes a bundle of runs in memory, for judging before anything is written.
func InMemory(m Manifest, runs []Run) *Bundle { return &Bundle{Manifest: m, Runs: runs} }
