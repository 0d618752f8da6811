package gateway

import (
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/picker"
)

func TestPickerTLS(t *testing.T) {
	if c, err := PickerTLS("", false); c != nil || err != nil {
		t.Error("plaintext by default:", c, err)
	}
	if c, err := PickerTLS("", true); err != nil || !c.InsecureSkipVerify {
		t.Error(c, err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if _, err := PickerTLS(file, false); err == nil {
		t.Error("a missing file is named")
	}
	if err := os.WriteFile(file, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := PickerTLS(file, false); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}

// TestSecurePicker sends a request through a picker with a self-signed certificate; a gateway that verifies refuses it.
func TestSecurePicker(t *testing.T) {
	b := newBackend(t)
	c, _ := epconfig.ContractNamed("")
	cfg := epconfig.Default(c)
	machine, err := picker.New(cfg.Picker)
	if err != nil {
		t.Fatal(err)
	}
	p, err := epp.Serve(epp.Options{Wiring: epp.DefaultWiring(machine, c), Config: cfg, GRPCAddr: "127.0.0.1:0", HealthAddr: "127.0.0.1:0",
		MetricsAddr: "127.0.0.1:0", ScrapeInterval: -1, Logger: slog.New(slog.DiscardHandler), Secure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.SetEndpoints([]picker.Endpoint{{Name: "b", Address: b.addr()}})
	p.Driver().Sample(0, picker.Load{At: 1 << 50, HasWaiting: true, HasKV: true, OK: true})
	insecure, _ := PickerTLS("", true)
	for why, row := range map[string]struct {
		tls    *tls.Config
		status int
	}{"unverified": {insecure, 200}, "verified": {&tls.Config{MinVersion: tls.VersionTLS12}, 500}, "plaintext": {nil, 500}} {
		r := &rig{t: t, decisions: make(chan epp.Decision, 16), observed: make(chan Exchange, 16)}
		r.frontend(Config{ExtProcAddr: p.GRPCAddr(), TLS: row.tls})
		got := r.send(t.Context(), "x")
		if row.status == 200 {
			(<-b.seen).answer("ok")
		}
		if resp, _, err := full(t, got); err != nil || resp.StatusCode != row.status {
			t.Errorf("%s: %v %v", why, resp, err)
		}
	}
}
