package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
)

// authority signs a certificate for every name that is asked for.
type authority struct {
	file  string // its own certificate
	root  *x509.Certificate
	key   *ecdsa.PrivateKey
	leafs *sync.Map // *tls.Certificate by name
}

func newAuthority(t *testing.T) authority {
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "roots of the fakes"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	a := authority{filepath.Join(t.TempDir(), "roots.pem"), must.Get(x509.ParseCertificate(der))(t), key, &sync.Map{}}
	must.Do(t, os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return a
}

func (a authority) tls() *tls.Config {
	return &tls.Config{
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if leaf, ok := a.leafs.Load(hello.ServerName); ok {
				return leaf.(*tls.Certificate), nil
			}
			leaf, err := a.leaf(hello.ServerName)
			if err == nil {
				a.leafs.Store(hello.ServerName, leaf)
			}
			return leaf, err
		},
	}
}

func (a authority) leaf(name string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: a.root.NotBefore, NotAfter: a.root.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// company is a company's proxy, through which alone anything outside is reached: it leads every
// host to the fakes, so that clients call the names that they always call.
func (f *apis) company(t *testing.T) (address string) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "the company's proxy only makes tunnels", http.StatusNotImplemented)
			return
		}
		out, err := net.Dial("tcp", f.address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		f.mu.Lock()
		f.tunnels[r.URL.Hostname()]++
		f.mu.Unlock()
		in, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_ = out.Close()
			return
		}
		_, _ = in.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n"))
		splice(in, buffered, out)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// splice copies both ways until either side ends.
func splice(in net.Conn, from io.Reader, out net.Conn) {
	done := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(out, from); done <- struct{}{} }()
	go func() { _, _ = io.Copy(in, out); done <- struct{}{} }()
	<-done
	_, _ = in.Close(), out.Close()
	<-done
}
