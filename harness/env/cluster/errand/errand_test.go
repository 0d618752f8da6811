package errand

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func call(t *testing.T, method, url string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

func status(t *testing.T, url string) Status {
	t.Helper()
	code, body := call(t, http.MethodGet, url+"/status")
	var s Status
	if err := json.Unmarshal(body, &s); err != nil || code != http.StatusOK || s.Now == 0 {
		t.Fatalf("status %d: %s: %v", code, body, err)
	}
	return s
}

// TestErrand goes once through what a pod and its sender say to each other.
func TestErrand(t *testing.T) {
	s := NewServer()
	h := httptest.NewServer(s.Handler())
	defer h.Close()
	if st := status(t, h.URL); st.Done || st.Waiting {
		t.Errorf("at first %+v", st)
	}
	if code, _ := call(t, http.MethodGet, h.URL+"/results"); code != http.StatusConflict {
		t.Errorf("results before the end: %d", code)
	}
	began := make(chan int64)
	go func() {
		at, err := s.AwaitBegin(t.Context())
		if err != nil {
			at = -1
		}
		began <- at
	}()
	for !status(t, h.URL).Waiting {
	}
	for _, c := range []struct {
		call string
		want int
	}{{"/begin?at=soon", http.StatusBadRequest}, {"/begin?at=17", http.StatusOK}} {
		if code, _ := call(t, http.MethodPost, h.URL+c.call); code != c.want {
			t.Errorf("%s: %d, want %d", c.call, code, c.want)
		}
	}
	if at := <-began; at != 17 {
		t.Errorf("begun at %d", at)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "env", "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 1<<20)
	for name, content := range map[string]string{"manifest.json": "{}", "env/a/log": large} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Done(3, dir); err != nil {
		t.Fatal(err)
	}
	st := status(t, h.URL)
	if !st.Done || st.Exit != 3 || st.Waiting || st.SHA256 == "" {
		t.Errorf("at the end %+v", st)
	}
	code, packed := call(t, http.MethodGet, h.URL+"/results")
	if code != http.StatusOK {
		t.Fatalf("results: %d", code)
	}
	to := t.TempDir()
	if err := Unpack(bytes.NewReader(packed), to, st.SHA256); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"manifest.json": "{}", "env/a/log": large} {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if err := Unpack(bytes.NewReader(packed[:len(packed)-1]), to, st.SHA256); err == nil {
		t.Error("results that were cut off were taken for whole")
	}
	select {
	case <-s.Taken():
		t.Error("taken before anybody said so")
	default:
	}
	for range 2 {
		if code, _ := call(t, http.MethodPost, h.URL+"/taken"); code != http.StatusOK {
			t.Errorf("taken: %d", code)
		}
	}
	<-s.Taken()
}
