package evidence

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
)

// Names of the evidence files of a bundle.
const (
	ManifestFile = "manifest.json"
	SealFile     = "manifest.sha256"
	PlanFile     = "plan.ndjson"
	ClientFile   = "client.ndjson"
	BackendFile  = "backend.ndjson"
	PickerFile   = "picker.ndjson"
	SamplesFile  = "samples.ndjson"
	StepsFile    = "steps.ndjson"
	ProcessFile  = "process.ndjson"
	ExchangeFile = "exchange.ndjson"
	ObserveFile  = "processor.ndjson"
	EnvDir       = "env"
)

// ndjsonFiles are the record files, always present, empty if there is nothing to say.
var ndjsonFiles = []string{PlanFile, ClientFile, BackendFile, PickerFile, SamplesFile, StepsFile, ProcessFile, ExchangeFile, ObserveFile}

// Writer lays a bundle down scenario by scenario, in catalogue order whatever the order in which scenarios end, so that an
// interrupted run keeps all it has seen and two virtual runs give the same bytes.
type Writer struct {
	mu      sync.Mutex
	dir     string
	order   []string
	next    int
	waiting map[string]*scenarioRecord
	files   map[string]*os.File
	failed  error
}

type scenarioRecord struct {
	plan  []json.RawMessage
	run   Run
	files map[string][]byte
}

// Create makes the folder of a bundle. The folder must be empty or absent: evidence is never overwritten.
func Create(dir string, order []string) (*Writer, error) {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("bundle folder %s is not empty: name another with --out, or remove it", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("bundle folder: %w", err)
	}
	w := &Writer{dir: dir, order: order, waiting: map[string]*scenarioRecord{}, files: map[string]*os.File{}}
	for _, n := range ndjsonFiles {
		f, err := os.Create(filepath.Join(dir, n))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("bundle file: %w", err), w.closeFiles())
		}
		w.files[n] = f
	}
	return w, nil
}

// Dir is the bundle's folder.
func (w *Writer) Dir() string { return w.dir }

// Scenario hands over the finished record of one scenario; rec nil if it was not played.
func (w *Writer) Scenario(name string, planLines []json.RawMessage, rec *Recorder) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Only a scenario that is still to come can be written; anything else would be lost without a word.
	if !slices.Contains(w.order[w.next:], name) {
		return fmt.Errorf("record of scenario %s: it was not announced, or its record is already written", name)
	}
	sr := &scenarioRecord{plan: planLines, files: map[string][]byte{}}
	if rec != nil {
		sr.run = rec.Run()
		rec.mu.Lock()
		for k, v := range rec.files {
			sr.files[k] = v
		}
		rec.mu.Unlock()
	}
	w.waiting[name] = sr
	return w.flush(false)
}

// flush writes what is due; with all it also writes what waits behind a scenario that never came.
func (w *Writer) flush(all bool) error {
	for w.next < len(w.order) {
		name := w.order[w.next]
		sr, ok := w.waiting[name]
		if !ok && !all {
			return w.failed
		}
		if ok {
			if err := w.write(name, sr); err != nil && w.failed == nil {
				w.failed = err
			}
			delete(w.waiting, name)
		}
		w.next++
	}
	return w.failed
}

func (w *Writer) write(name string, sr *scenarioRecord) error {
	var errs []error
	for _, p := range sr.plan {
		errs = append(errs, w.line(PlanFile, p))
	}
	for _, c := range sr.run.Clients {
		errs = append(errs, w.line(ClientFile, c))
	}
	for _, b := range sr.run.Backends {
		errs = append(errs, w.line(BackendFile, b))
	}
	for _, d := range sr.run.Decisions {
		errs = append(errs, w.line(PickerFile, d))
	}
	for _, x := range sr.run.Exchanges {
		errs = append(errs, w.line(ExchangeFile, x))
	}
	for _, s := range sr.run.Samples {
		errs = append(errs, w.line(SamplesFile, s))
	}
	for _, s := range sr.run.Steps {
		errs = append(errs, w.line(StepsFile, s))
	}
	for _, p := range sr.run.Processes {
		errs = append(errs, w.line(ProcessFile, p))
	}
	for _, o := range sr.run.Observations {
		errs = append(errs, w.line(ObserveFile, o))
	}
	for f, content := range sr.files {
		path := filepath.Join(w.dir, EnvDir, name, f)
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644))
	}
	return errors.Join(errs...)
}

func (w *Writer) line(file string, v any) error {
	b, err := encodeLine(v)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if _, err := w.files[file].Write(b); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func encodeLine(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Seal closes the record files, hashes everything and writes the manifest and the manifest's own hash. After it nothing is added.
func (w *Writer) Seal(m Manifest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := errors.Join(w.flush(true), w.closeFiles())
	m.Schema = Schema
	files, herr := hashTree(w.dir)
	m.Files = files
	b, merr := json.MarshalIndent(m, "", "  ")
	if merr != nil {
		return errors.Join(err, herr, fmt.Errorf("manifest: %w", merr))
	}
	b = append(b, '\n')
	sum := sha256.Sum256(b)
	return errors.Join(err, herr,
		os.WriteFile(filepath.Join(w.dir, ManifestFile), b, 0o644),
		os.WriteFile(filepath.Join(w.dir, SealFile), []byte(hex.EncodeToString(sum[:])+"  "+ManifestFile+"\n"), 0o644))
}

func (w *Writer) closeFiles() error {
	var errs []error
	for _, n := range ndjsonFiles {
		if f := w.files[n]; f != nil {
			errs = append(errs, f.Close())
			delete(w.files, n)
		}
	}
	return errors.Join(errs...)
}

// hashTree lists the evidence files under dir with their hashes, sorted by name.
func hashTree(dir string) ([]FileEntry, error) {
	var out []FileEntry
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		out = append(out, FileEntry{Name: filepath.ToSlash(rel), SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(b))})
		return nil
	})
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, err
}
