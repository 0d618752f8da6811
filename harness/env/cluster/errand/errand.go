// Package errand is what a pod that runs this program on somebody's behalf and whoever sent it agree on.
//
//	GET  /status        how far it is, and the pod's clock
//	POST /begin?at=NS   begin at this instant of the pod's clock
//	GET  /results       what it has left behind, once it is done: a tar.gz
//	POST /taken         the results are safe; the pod may end
package errand

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/llm-weir/weir/harness/clock"
)

// Where things are in the pod.
const (
	Port    = 8099
	Results = "/results"
	Files   = "/etc/errand"
	Scratch = "/scratch"
)

// Status is how far an errand is.
type Status struct {
	Now     int64  `json:"now"` // of the pod's clock, in ns since 1970
	Waiting bool   `json:"waiting"`
	Done    bool   `json:"done"`
	Exit    int    `json:"exit"`
	SHA256  string `json:"sha256,omitempty"` // of the results
}

// Server is the pod's side.
type Server struct {
	mu     sync.Mutex
	status Status
	packed []byte
	begin  chan int64
	taken  chan struct{}
	once   sync.Once
}

// NewServer makes the pod's side of an errand.
func NewServer() *Server { return &Server{begin: make(chan int64, 1), taken: make(chan struct{})} }

// Handler serves the calls.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		st := s.status
		s.mu.Unlock()
		st.Now = clock.Wall().UnixNano()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(st)
	})
	mux.HandleFunc("POST /begin", func(w http.ResponseWriter, r *http.Request) {
		at, err := strconv.ParseInt(r.URL.Query().Get("at"), 10, 64)
		if err != nil {
			http.Error(w, "at: want nanoseconds since 1970", http.StatusBadRequest)
			return
		}
		select {
		case s.begin <- at:
		default:
			http.Error(w, "it has begun", http.StatusConflict)
		}
	})
	mux.HandleFunc("GET /results", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		packed, done := s.packed, s.status.Done
		s.mu.Unlock()
		if !done {
			http.Error(w, "not done yet", http.StatusConflict)
			return
		}
		w.Header().Set("Content-Type", "application/gzip")
		w.Header().Set("Content-Length", strconv.Itoa(len(packed)))
		_, _ = w.Write(packed)
	})
	mux.HandleFunc("POST /taken", func(http.ResponseWriter, *http.Request) { s.once.Do(func() { close(s.taken) }) })
	return mux
}

// AwaitBegin waits to be told when to begin, in ns since 1970 of this clock.
func (s *Server) AwaitBegin(ctx context.Context) (int64, error) {
	s.mu.Lock()
	s.status.Waiting = true
	s.mu.Unlock()
	select {
	case at := <-s.begin:
		s.mu.Lock()
		s.status.Waiting = false
		s.mu.Unlock()
		return at, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Done says that the errand has ended with a status, and packs what it left in dir.
func (s *Server) Done(exit int, dir string) error {
	packed, err := pack(dir)
	sum := sha256.Sum256(packed)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packed, s.status.Done, s.status.Exit, s.status.SHA256 = packed, true, exit, hex.EncodeToString(sum[:])
	return err
}

// Taken is closed once the results are safe.
func (s *Server) Taken() <-chan struct{} { return s.taken }

// pack is a folder as tar.gz.
func pack(dir string) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err = t.Write(content)
		return err
	})
	err = errors.Join(err, t.Close(), z.Close())
	return b.Bytes(), err
}

// Unpack writes a tar.gz below dir, and says if it is not the one with this SHA-256.
func Unpack(in io.Reader, dir, sum string) error {
	packed, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	if got := sha256.Sum256(packed); hex.EncodeToString(got[:]) != sum {
		return fmt.Errorf("%d bytes came, but not those that were sent", len(packed))
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t := tar.NewReader(z)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || strings.Contains(h.Name, "..") {
			return fmt.Errorf("%q is no plain file", h.Name)
		}
		if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(h.Name)), 0o755); err != nil {
			return err
		}
		content, err := io.ReadAll(t)
		if err != nil {
			return err
		}
		if err := root.WriteFile(filepath.FromSlash(h.Name), content, 0o644); err != nil {
			return err
		}
	}
}
