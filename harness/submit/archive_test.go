package submit

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

// Whatever an archive holds, nothing is written beside the folder it is unpacked to, and nothing in it is a link.
func FuzzUnpack(f *testing.F) {
	for _, h := range []tar.Header{
		{Name: "client.ndjson", Typeflag: tar.TypeReg, Size: 1}, {Name: "../x", Typeflag: tar.TypeReg, Size: 1}, {Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/x"},
		{Name: "env/a/config.yaml", Typeflag: tar.TypeReg, Size: 1},
	} {
		var raw bytes.Buffer
		w := tar.NewWriter(&raw)
		_ = w.WriteHeader(&h)
		_, _ = w.Write([]byte("x"))
		_ = w.Close()
		f.Add(raw.Bytes())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(raw); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		around := t.TempDir()
		dir := filepath.Join(around, "dir")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = unpack(&packed, dir, 1<<16)
		if entries, err := os.ReadDir(around); err != nil || len(entries) != 1 {
			t.Fatalf("%v %v", entries, err)
		}
		total := int64(0)
		_ = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			info, err := d.Info()
			if err != nil || !d.IsDir() && !info.Mode().IsRegular() {
				t.Errorf("%s: %v %v", p, info, err)
			} else if !d.IsDir() {
				total += info.Size()
			}
			return nil
		})
		if total > 1<<16 {
			t.Errorf("%d bytes unpacked", total)
		}
	})
}
