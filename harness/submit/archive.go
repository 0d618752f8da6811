package submit

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/llm-weir/weir/harness/evidence"
)

// Bounds of an archive that somebody else made.
const (
	unpackedLimit = 2 << 30 // bytes
	entriesLimit  = 200_000
)

// packed is what became of a bundle's evidence.
type packed struct {
	seal  string // sha256 of manifest.json, which has the hash of everything else
	files int
	bytes int64  // unpacked
	sum   string // sha256 of the archive
	size  int64
}

// pack writes the evidence of a bundle, without its reports, as a gzipped tar: the same evidence gives the same bytes.
func pack(b *evidence.Bundle, to string) (packed, error) {
	var p packed
	f, err := os.Create(to)
	if err != nil {
		return p, err
	}
	defer f.Close()
	root, err := os.OpenRoot(b.Dir)
	if err != nil {
		return p, err
	}
	defer root.Close()
	h := sha256.New()
	z, err := gzip.NewWriterLevel(io.MultiWriter(f, h), gzip.BestCompression)
	if err != nil {
		return p, err
	}
	t := tar.NewWriter(z)
	for _, name := range evidenceFiles(b.Manifest) {
		content, err := root.ReadFile(filepath.FromSlash(name))
		if err != nil {
			return p, err
		}
		if name == evidence.ManifestFile {
			p.seal = digest(content)
		}
		p.files++
		p.bytes += int64(len(content))
		if err := t.WriteHeader(&tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return p, err
		}
		if _, err := t.Write(content); err != nil {
			return p, err
		}
	}
	if err := errors.Join(t.Close(), z.Close(), f.Close()); err != nil {
		return p, err
	}
	info, err := os.Stat(to)
	if err != nil {
		return p, err
	}
	p.sum, p.size = hex.EncodeToString(h.Sum(nil)), info.Size()
	return p, nil
}

// evidenceFiles are the files of the evidence in the order of the archive.
func evidenceFiles(m evidence.Manifest) []string {
	out := []string{evidence.ManifestFile, evidence.SealFile}
	for _, f := range m.Files {
		out = append(out, f.Name)
	}
	return out
}

// notRegular lists evidence files that are links, pipes or whatever else is no file of its own.
func notRegular(dir string, m evidence.Manifest) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var bad []string
	for _, name := range evidenceFiles(m) {
		info, err := root.Lstat(filepath.FromSlash(name))
		if err != nil {
			return bad, err
		}
		if !info.Mode().IsRegular() {
			bad = append(bad, name+" is a link or no regular file: put the file itself into the bundle")
		}
	}
	return bad, nil
}

// unpack puts an archive into the folder dir, which must be empty. The archive may come from anywhere: nothing is written outside
// dir, and nothing but plain files of at most limit bytes together.
func unpack(archive io.Reader, dir string, limit int64) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	z, err := gzip.NewReader(archive)
	if err != nil {
		return fmt.Errorf("no gzip file: %w", err)
	}
	left := min(limit, unpackedLimit)
	t := tar.NewReader(z)
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			// What stands behind the end of the archive is read as well, so that its checksum is looked at.
			_, err := io.CopyN(io.Discard, z, 1<<20)
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("after the last file: %w", cmpErr(err, errors.New("more than a megabyte of something else")))
		}
		if err != nil {
			return err
		}
		switch {
		case n >= entriesLimit:
			return fmt.Errorf("more than %d files", entriesLimit)
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("%q is a link or no regular file", h.Name)
		case !fs.ValidPath(h.Name) || !filepath.IsLocal(filepath.FromSlash(h.Name)) || bytes.ContainsAny([]byte(h.Name), "\\:\x00"):
			return fmt.Errorf("%q leads out of the archive or is no portable name", h.Name)
		case h.Size > left:
			return fmt.Errorf("more than %d bytes unpacked", min(limit, unpackedLimit))
		}
		left -= h.Size
		if err := unpackFile(root, h.Name, t); err != nil {
			return err
		}
	}
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func unpackFile(root *os.Root, name string, content io.Reader) error {
	if d := path.Dir(name); d != "." {
		if err := root.MkdirAll(filepath.FromSlash(d), 0o755); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%q is there twice", name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// unsealed lists what lies among the evidence and is in no manifest; reports beside it are none of it. In an archive everything counts.
func unsealed(dir string, m evidence.Manifest, archive bool) ([]string, error) {
	known := evidenceFiles(m)
	var bad []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if !slices.Contains(known, rel) && (archive || path.Dir(rel) != ".") {
			bad = append(bad, rel+" was never sealed")
		}
		return nil
	})
	return bad, err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
