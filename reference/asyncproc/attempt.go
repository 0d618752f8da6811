package asyncproc

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
)

// responseLimit bounds a response body in bytes; a longer one counts as truncated.
const responseLimit = 64 << 20

// newHTTPClient makes the client towards the gateway. Redirects are answers like any other, because following one would turn the POST
// into a GET without its body; proxies of the environment are not used (spec/async-processor.md §3.1).
func newHTTPClient(f asyncconfig.Flags, workers int) (*http.Client, error) {
	t := &http.Transport{MaxIdleConns: max(100, workers), MaxIdleConnsPerHost: max(2, workers), IdleConnTimeout: 90 * time.Second,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: f.TLSInsecureSkipVerify}} //nolint:gosec // --tls-insecure-skip-verify says so
	var errs []error
	if f.TLSCACert != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		pem, err := os.ReadFile(f.TLSCACert)
		if err == nil && !pool.AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%s: no certificate in PEM form in it", f.TLSCACert)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--tls-ca-cert: %w", err))
		}
		t.TLSClientConfig.RootCAs = pool
	}
	if f.TLSCert != "" && f.TLSKey != "" {
		pair, err := tls.LoadX509KeyPair(f.TLSCert, f.TLSKey)
		if err != nil {
			errs = append(errs, fmt.Errorf("--tls-cert, --tls-key: %w", err))
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, errors.Join(errs...)
}

// attempt makes one POST and says how it ended. headers win over those of to.
func attempt(ctx context.Context, c *http.Client, to async.Outgoing, body []byte, headers http.Header) async.Answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader(body))
	if err != nil {
		return async.Answer{Failure: async.Unsendable, Error: err.Error()}
	}
	for _, h := range to.Headers {
		req.Header.Set(h.Name, h.Value)
	}
	maps.Copy(req.Header, headers)
	res, err := c.Do(req)
	if err != nil {
		return async.Answer{Failure: async.Transport, Error: err.Error()}
	}
	defer res.Body.Close()
	a := async.Answer{Status: res.StatusCode, RetryAfter: res.Header.Get("Retry-After")}
	var text bytes.Buffer
	n, err := text.ReadFrom(io.LimitReader(res.Body, responseLimit+1))
	switch {
	case err != nil:
		a.Failure, a.Error = async.Truncated, err.Error()
	case n > responseLimit:
		a.Failure, a.Error = async.Truncated, fmt.Sprintf("the response is longer than %d bytes", responseLimit)
	}
	a.Body = text.String()
	return a
}

// usage reads the tokens of an OpenAI answer; ok is false where there is nothing to read (AP-MET-04).
func usage(target string, r *async.Result) (input, output int64, ok bool) {
	u, err := url.Parse(target)
	if err != nil || !r.Successful() || !strings.HasSuffix(u.Path, "v1/completions") && !strings.HasSuffix(u.Path, "v1/chat/completions") {
		return 0, 0, false
	}
	var body struct {
		Usage *struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal([]byte(r.Payload), &body) != nil || body.Usage == nil || body.Usage.Prompt < 0 || body.Usage.Completion < 0 {
		return 0, 0, false
	}
	return body.Usage.Prompt, body.Usage.Completion, true
}
