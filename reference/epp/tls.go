package epp

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

// certificate is what a TLS listener shows; it may be replaced while the listener is open.
type certificate struct {
	dir     string // "" for a self-signed one
	last    []byte // content of both files
	current atomic.Pointer[tls.Certificate]
}

// newCertificate reads tls.crt and tls.key of a directory, or makes a certificate if there is none.
func newCertificate(dir string) (*certificate, error) {
	c := &certificate{dir: dir}
	if dir != "" {
		_, err := c.load()
		return c, err
	}
	made, err := selfSigned(clock.Wall())
	c.current.Store(made)
	return c, err
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return c.current.Load(), nil
	}}
}

// load reads the files; as long as they are wrong, half of a change for instance, the former certificate stays.
func (c *certificate) load() (changed bool, err error) {
	crt, errCrt := os.ReadFile(filepath.Join(c.dir, "tls.crt"))
	key, errKey := os.ReadFile(filepath.Join(c.dir, "tls.key"))
	if err := errors.Join(errCrt, errKey); err != nil {
		return false, fmt.Errorf("--cert-path %s: %w", c.dir, err)
	}
	both := append(append([]byte{}, crt...), key...)
	if bytes.Equal(both, c.last) {
		return false, nil
	}
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		return false, fmt.Errorf("--cert-path %s: %w", c.dir, err)
	}
	c.last = both
	c.current.Store(&pair)
	return true, nil
}

// selfSigned makes a certificate for whoever does not verify it, as the router does by default.
func selfSigned(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"weir"}}, DNSNames: []string{"localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
