package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// PickerTLS is the TLS towards a picker: verified by the authorities of a PEM file, or not at all. Without either it is nil, which is
// plaintext.
func PickerTLS(caFile string, skipVerify bool) (*tls.Config, error) {
	if skipVerify {
		return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, nil
	}
	if caFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("authorities of the picker: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authorities of the picker: %s holds no PEM certificate", caFile)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, nil
}
