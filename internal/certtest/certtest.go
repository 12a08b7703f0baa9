// Package certtest makes certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
)

// SelfSigned writes a certificate for 127.0.0.1 and for names, and its key, into a folder.
func SelfSigned(t testing.TB, dir string, names ...string) (cert, key string) {
	t.Helper()
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: names, IsCA: true, BasicConstraintsValid: true}
	signed := must.Get(x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private))(t)
	der := must.Get(x509.MarshalECPrivateKey(private))(t)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "EC PRIVATE KEY", Bytes: der}} {
		must.Do(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}
