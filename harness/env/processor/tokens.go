package processor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/evidence"
)

// tokenPattern finds tokens: upper-case words, some followed by a name in lower case.
var tokenPattern = regexp.MustCompile(`\$[A-Z][A-Z0-9]*(?:_[a-z][a-z0-9]*)?(?:_PORT)?`)

// token gives the value of one token.
func (r *rig) token(ctx context.Context, p *program, name string) (string, error) {
	kind, arg, _ := strings.Cut(name, "_")
	switch kind {
	case "BROKER":
		return r.brokers[0].proxy.addr, nil
	case "BROKER2":
		if r.brokers[1] == nil {
			b, err := newBroker(r.opts.RedisServer, filepath.Join(r.dir, "broker2"))
			if err != nil {
				return "", err
			}
			r.brokers[1] = b
		}
		return r.brokers[1].proxy.addr, nil
	case "TLSBROKER":
		return r.tlsBroker()
	case "UPSTREAM":
		return r.up.url(arg, nil)
	case "ADDRESS":
		u, err := r.up.url(arg, nil)
		return strings.TrimPrefix(u, "http://"), err
	case "TLS", "MTLS":
		c, err := r.certificates()
		if err != nil {
			return "", err
		}
		return r.up.url(strings.ToLower(kind)+arg, c.server(kind == "MTLS"))
	case "NOBODY":
		port, err := binary.FreePort()
		return fmt.Sprintf("127.0.0.1:%d", port), err
	case "PROM":
		if r.prom == nil {
			s, err := newSource(r.clock, r.note)
			if err != nil {
				return "", err
			}
			if err := s.queries(); err != nil {
				return "", errors.Join(err, s.close())
			}
			r.prom = s
		}
		return "http://" + r.prom.addr, nil
	case "PAGE":
		if r.page == nil {
			s, err := newSource(r.clock, r.note)
			if err != nil {
				return "", err
			}
			r.page = s
		}
		return "http://" + r.page.addr + "/metrics", nil
	case "OTLP":
		if r.otlp == nil {
			s, err := newSink(r.clock, r.note, "127.0.0.1:0")
			if err != nil {
				return "", err
			}
			r.otlp = s
		}
		return "http://" + r.otlp.addr, nil
	case "PUBSUB":
		return r.pubsub(ctx)
	case "FILE":
		if p == nil {
			return "", fmt.Errorf("a file belongs to a processor")
		}
		return filepath.Join(p.dir, arg), nil
	case "CA", "CERT", "KEY":
		c, err := r.certificates()
		if err != nil {
			return "", err
		}
		return map[string]string{"CA": c.ca, "CERT": c.cert, "KEY": c.key}[kind], nil
	case "METRICS", "HEALTH":
		if p == nil {
			return "", fmt.Errorf("no processor runs")
		}
		return fmt.Sprint(map[string]int{"METRICS": p.metrics, "HEALTH": p.health}[kind]), nil
	}
	return "", fmt.Errorf("unknown token")
}

func (r *rig) pubsub(ctx context.Context) (string, error) {
	if r.topics == nil {
		t, err := newTopics(ctx)
		if err != nil {
			return "", err
		}
		r.topics = t
	}
	return r.topics.server.Addr, nil
}

// tlsBroker is the first broker with TLS towards the processor.
func (r *rig) tlsBroker() (string, error) {
	b := r.brokers[0]
	if b.secure == nil {
		c, err := r.certificates()
		if err != nil {
			return "", err
		}
		if b.secure, err = newProxy(b.proxy.target, c.server(false)); err != nil {
			return "", err
		}
	}
	return b.secure.addr, nil
}

func (r *rig) note(o evidence.Observation) { r.out.Observe(o) }

// certificates are an authority that nobody trusts by itself, with a server's and a client's certificate of it.
type certificates struct {
	ca, cert, key string // files
	pool          *x509.CertPool
	pair          tls.Certificate
}

func (r *rig) certificates() (*certificates, error) {
	if r.certs != nil {
		return r.certs, nil
	}
	c := &certificates{ca: filepath.Join(r.dir, "ca.pem"), cert: filepath.Join(r.dir, "client.pem"), key: filepath.Join(r.dir, "client.key"), pool: x509.NewCertPool()}
	now := clock.Wall()
	template := func(n int64, name string) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(n), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := template(1, "weir test authority")
	ca.IsCA = true
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	caPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	c.pool.AppendCertsFromPEM(caPEM)
	issue := func(n int64, name string, usage x509.ExtKeyUsage) (certPEM, keyPEM []byte, err error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, err
		}
		t := template(n, name)
		t.ExtKeyUsage, t.IPAddresses = []x509.ExtKeyUsage{usage}, []net.IP{net.IPv4(127, 0, 0, 1)}
		der, err := x509.CreateCertificate(rand.Reader, t, ca, key.Public(), caKey)
		if err != nil {
			return nil, nil, err
		}
		raw, err := x509.MarshalPKCS8PrivateKey(key)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), err
	}
	serverCert, serverKey, err := issue(2, "upstream", x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}
	if c.pair, err = tls.X509KeyPair(serverCert, serverKey); err != nil {
		return nil, err
	}
	clientCert, clientKey, err := issue(3, "processor", x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	for path, content := range map[string][]byte{c.ca: caPEM, c.cert: clientCert, c.key: clientKey} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, err
		}
	}
	r.certs = c
	return c, nil
}

// server is the configuration of a TLS upstream.
func (c *certificates) server(mutual bool) *tls.Config {
	t := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{c.pair}}
	if mutual {
		t.ClientAuth, t.ClientCAs = tls.RequireAndVerifyClientCert, c.pool
	}
	return t
}
