package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/loadgen/openai"
	"github.com/llm-weir/weir/sim-vllm/server"
)

// schemeError is an address under which something else is spoken.
type schemeError struct {
	err    error
	advice string
}

func (e *schemeError) Error() string { return e.err.Error() + ": " + e.advice }

func (e *schemeError) Unwrap() error { return e.err }

// explain adds to an error of the transport what is likely to be wrong with the address.
func explain(err error) error {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	switch text := err.Error(); {
	case strings.Contains(text, "server gave HTTP response to HTTPS client"), errors.As(err, &record):
		return &schemeError{err, "it speaks no TLS: write http:// in place of https://"}
	case strings.Contains(text, "malformed HTTP response"):
		return &schemeError{err, "it does not speak plain HTTP/1: write https:// if it speaks TLS"}
	case errors.As(err, &unknown), errors.As(err, &host):
		return fmt.Errorf("%w: its certificate is not trusted here: serve it without TLS for the certification", err)
	}
	return err
}

// statusError words a status that is no answer.
func statusError(status int, body []byte) error {
	start := strings.TrimSpace(string(body[:min(len(body), 200)]))
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Errorf("status %d: it asks for authentication, and no credentials are sent: let it be read without", status)
	case strings.Contains(start, "HTTP request to an HTTPS server"):
		return &schemeError{fmt.Errorf("status %d", status), "it speaks TLS: write https:// in place of http://"}
	case status == http.StatusMovedPermanently || status == http.StatusFound || status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect:
		return fmt.Errorf("status %d: it leads to another address: name that one", status)
	}
	return fmt.Errorf("status %d: %s", status, start)
}

// pageLimit bounds the reading of a page.
const pageLimit = 5 * time.Second

// get reads a page that must be there.
func get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, explain(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %w", address, statusError(resp.StatusCode, text))
	}
	return text, nil
}

// page reads a metrics page.
func page(ctx context.Context, client *http.Client, address string) ([]*dto.MetricFamily, error) {
	text, err := get(ctx, client, address)
	if err != nil {
		return nil, fmt.Errorf("metrics page: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	byName, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("metrics page: %s: it is no page of metrics: %w", address, err)
	}
	out := make([]*dto.MetricFamily, 0, len(byName))
	for _, f := range byName {
		out = append(out, f)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].GetName() < out[j].GetName() })
	return out, nil
}

// answers tells whether a URL answers HTTP at all; what it answers is the router's business, but for a wrong scheme.
func answers(ctx context.Context, client *http.Client, address string) error {
	ctx, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("gateway: %w", explain(err))
	}
	defer resp.Body.Close()
	start, err := io.ReadAll(io.LimitReader(resp.Body, 200))
	if resp.StatusCode == http.StatusBadRequest && strings.Contains(string(start), "HTTPS server") {
		return fmt.Errorf("gateway: %s: %w", address, statusError(resp.StatusCode, start))
	}
	if err != nil {
		return fmt.Errorf("gateway: %s: %w", address, err)
	}
	return nil
}

// Preflight tells what of the addresses cannot be used, before anything is played: the simulators' at any time, the router's own where no
// command brings it up.
func (s *System) Preflight(ctx context.Context) error {
	client := openai.NewClient(4)
	defer client.CloseIdleConnections()
	var errs []error
	for _, sm := range s.simulators(client) {
		errs = append(errs, sm.known(ctx))
	}
	configured := s.has("command")
	if !s.fronted() {
		err := answers(ctx, client, s.opts.Running.Gateway)
		var scheme *schemeError
		if !configured || errors.As(err, &scheme) {
			errs = append(errs, err)
		}
	}
	if !configured {
		errs = append(errs, s.metricsAnswer(ctx, client))
	}
	return errors.Join(errs...)
}

// metricsAnswer tells whether the metrics page can be used, if there is one.
func (s *System) metricsAnswer(ctx context.Context, client *http.Client) error {
	at := s.reach().Metrics
	if at == "" {
		return nil
	}
	_, err := page(ctx, client, at)
	return err
}

// Restore sets the simulators up as they were started, so that whoever uses them next finds none that holds its answers.
func Restore(ctx context.Context, r sut.Running) error {
	client := openai.NewClient(4)
	defer client.CloseIdleConnections()
	s := System{opts: Options{Running: r}}
	var errs []error
	for _, sm := range s.simulators(client) {
		errs = append(errs, sm.bounded(ctx, http.MethodPost, "/admin/setup", server.Setup{}, nil))
	}
	return errors.Join(errs...)
}
