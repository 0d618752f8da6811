package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// adminRoutes is the control interface over HTTP: the control methods, one path each.
func (s *Server) adminRoutes(m *http.ServeMux) {
	m.HandleFunc("GET /admin/requests", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Log()) })
	m.HandleFunc("GET /admin/about", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.about()) })
	m.HandleFunc("GET /admin/changes", s.changes)
	m.HandleFunc("GET /admin/state", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.state()) })
	m.HandleFunc("POST /admin/hold", command(func(b struct {
		Hold *bool `json:"hold"`
	}) (any, error) {
		if b.Hold == nil {
			return nil, errors.New(`hold is missing, want {"hold":true} or {"hold":false}`)
		}
		s.SetHold(*b.Hold)
		return s.state(), nil
	}))
	m.HandleFunc("POST /admin/release", command(func(b struct {
		ID  *string `json:"id"`
		All bool    `json:"all"`
	}) (any, error) {
		if (b.ID != nil) == b.All {
			return nil, errors.New(`want either {"id":"..."} or {"all":true}`)
		}
		n := 0
		if b.All {
			n = s.ReleaseAll()
		} else if s.Release(*b.ID) {
			n = 1
		}
		return map[string]int{"released": n}, nil
	}))
	m.HandleFunc("POST /admin/load", command(func(l *Load) (any, error) {
		s.SetLoad(l)
		return s.state(), nil
	}))
	m.HandleFunc("POST /admin/metrics", command(func(b struct {
		Fault MetricsFault `json:"fault"`
	}) (any, error) {
		return s.state(), s.SetMetricsFault(b.Fault)
	}))
	m.HandleFunc("POST /admin/fail", command(func(b struct {
		Status *int `json:"status"`
	}) (any, error) {
		if b.Status == nil {
			return nil, errors.New(`status is missing, want {"status":503}, or 0 to end the failure`)
		}
		return s.state(), s.Fail(*b.Status)
	}))
	m.HandleFunc("POST /admin/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.Reset()
		writeJSON(w, http.StatusOK, s.state())
	})
}

// state is what GET /admin/state shows.
type state struct {
	Name      string   `json:"name"`
	Hold      bool     `json:"hold"`
	Held      []string `json:"held"`
	InFlight  int      `json:"inFlight"`
	Scrapes   int64    `json:"scrapes"`
	LateSteps int64    `json:"lateSteps"`
}

func (s *Server) state() state {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	return state{s.cfg.Name, hold, s.Held(), s.InFlight(), s.Scrapes(), s.LateSteps()}
}

// command decodes one strict JSON document and answers with what do returns; a fault of the document is a 400 that names it.
func command[T any](do func(T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var b T
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
		dec.DisallowUnknownFields()
		err := dec.Decode(&b)
		if err == nil {
			if _, end := dec.Token(); !errors.Is(end, io.EOF) {
				err = errors.New("more than one JSON document")
			}
		}
		var answer any
		if err == nil {
			answer, err = do(b)
		}
		if err != nil {
			badRequest("%v", fmt.Errorf("%s: %w", r.URL.Path, err)).write(w)
			return
		}
		writeJSON(w, http.StatusOK, answer)
	}
}
