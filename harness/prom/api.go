package prom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// formBytes bounds a posted form.
const formBytes = 1 << 20

// handler answers the part of Prometheus' HTTP API that gates and checks use.
func (s *Server) handler() http.Handler {
	m := http.NewServeMux()
	for _, path := range []string{"/-/ready", "/-/healthy"} {
		m.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "weir prometheus is ready.") })
	}
	for path, answer := range map[string]func(*http.Request) (promql.Query, error){"/api/v1/query": s.instant, "/api/v1/query_range": s.ranged} {
		h := func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, answer) }
		m.HandleFunc("GET "+path, h)
		m.HandleFunc("POST "+path, h)
	}
	return m
}

// answer is the envelope of the API.
type answer struct {
	Status    string   `json:"status"`
	Data      *data    `json:"data,omitempty"`
	ErrorType string   `json:"errorType,omitempty"`
	Error     string   `json:"error,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
	Infos     []string `json:"infos,omitempty"`
}

type data struct {
	ResultType parser.ValueType `json:"resultType"`
	Result     parser.Value     `json:"result"`
}

// annotations bounds the warnings and infos of one answer.
const annotations = 10

func (s *Server) serve(w http.ResponseWriter, r *http.Request, ask func(*http.Request) (promql.Query, error)) {
	r.Body = http.MaxBytesReader(w, r.Body, formBytes)
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest, "bad_data", err)
		return
	}
	ctx, cancel, err := s.bound(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad_data", err)
		return
	}
	defer cancel()
	q, err := ask(r.WithContext(ctx))
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad_data", err)
		return
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		status, kind := failure(res.Err)
		refuse(w, status, kind, res.Err)
		return
	}
	v := res.Value
	switch list := v.(type) { // an empty result is a list, not null
	case promql.Vector:
		if list == nil {
			v = promql.Vector{}
		}
	case promql.Matrix:
		if list == nil {
			v = promql.Matrix{}
		}
	}
	warnings, infos := res.Warnings.AsStrings(r.Form.Get("query"), annotations, annotations)
	write(w, http.StatusOK, answer{Status: "success", Data: &data{v.Type(), v}, Warnings: warnings, Infos: infos})
}

// bound is the context of a query whose form may shorten its time.
func (s *Server) bound(r *http.Request) (context.Context, context.CancelFunc, error) {
	limit := queryTimeout
	if text := r.Form.Get("timeout"); text != "" {
		d, err := duration("timeout", text)
		if err != nil {
			return nil, nil, err
		}
		limit = min(limit, d)
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	return ctx, cancel, nil
}

func (s *Server) instant(r *http.Request) (promql.Query, error) {
	at := s.now()
	if text := r.Form.Get("time"); text != "" {
		var err error
		if at, err = instant("time", text); err != nil {
			return nil, err
		}
	}
	q, err := s.engine.NewInstantQuery(r.Context(), s.db, nil, r.Form.Get("query"), at)
	return q, named("query", err)
}

func (s *Server) ranged(r *http.Request) (promql.Query, error) {
	start, err1 := instant("start", r.Form.Get("start"))
	end, err2 := instant("end", r.Form.Get("end"))
	step, err3 := duration("step", r.Form.Get("step"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	switch {
	case end.Before(start):
		return nil, errors.New("end: it must not be before start")
	case step <= 0:
		return nil, errors.New("step: it must be positive")
	case end.Sub(start)/step > maxPoints:
		return nil, fmt.Errorf("step: more than %d points in a series; make it longer", maxPoints)
	}
	q, err := s.engine.NewRangeQuery(r.Context(), s.db, nil, r.Form.Get("query"), start, end, step)
	return q, named("query", err)
}

func named(parameter string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", parameter, err)
	}
	return nil
}

// instant reads Unix seconds with a fraction, or RFC 3339.
func instant(parameter, text string) (time.Time, error) {
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) < math.MaxInt64/1e9 {
		whole, part := math.Modf(f)
		return time.Unix(int64(whole), int64(math.Round(part*1e3))*1e6), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fmt.Errorf("%s: %q is neither Unix seconds nor an RFC 3339 time", parameter, text)
	}
	return t, nil
}

// duration reads seconds with a fraction, or a Prometheus duration.
func duration(parameter, text string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) < math.MaxInt64/1e9 {
		return time.Duration(f * float64(time.Second)), nil
	}
	d, err := model.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is neither seconds nor a duration such as 1m30s", parameter, text)
	}
	return time.Duration(d), nil
}

// failure is the status of a query that could be read and not be answered.
func failure(err error) (int, string) {
	var (
		canceled promql.ErrQueryCanceled
		late     promql.ErrQueryTimeout
		storage  promql.ErrStorage
	)
	switch {
	case errors.As(err, &canceled):
		return http.StatusServiceUnavailable, "canceled"
	case errors.As(err, &late):
		return http.StatusServiceUnavailable, "timeout"
	case errors.As(err, &storage):
		return http.StatusInternalServerError, "internal"
	}
	return http.StatusUnprocessableEntity, "execution"
}

func refuse(w http.ResponseWriter, status int, kind string, err error) {
	write(w, status, answer{Status: "error", ErrorType: kind, Error: err.Error()})
}

func write(w http.ResponseWriter, status int, a answer) {
	body, err := json.Marshal(a)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"status":"error","errorType":"internal","error":"the result cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
