package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/budgethttp"
)

// authority makes the certificates of one run. Its root has signed one intermediate, which is
// constrained to the metered hosts, and the root's key is gone: Java does not hold a root to its
// constraints, but holds an intermediate to them. The intermediate's key is in memory only.
type authority struct {
	hosts        []string
	root         *x509.Certificate
	intermediate *x509.Certificate
	key          *ecdsa.PrivateKey // the intermediate's

	mu     sync.Mutex
	leaves map[string]*tls.Certificate // by host
}

// newAuthority makes the authority for hosts, in small letters; "*.x" stands for all hosts below x,
// and "*" for all.
// Its certificates are valid from a day before now, for clocks that are slow, to 398 days after.
func newAuthority(hosts []string, now time.Time) (*authority, error) {
	a := &authority{hosts: hosts, leaves: map[string]*tls.Certificate{}}
	root := template(now.AddDate(0, 0, -1), now.AddDate(0, 0, 398))
	root.IsCA, root.KeyUsage = true, x509.KeyUsageCertSign
	between := template(root.NotBefore, root.NotAfter)
	between.IsCA, between.KeyUsage, between.MaxPathLenZero = true, x509.KeyUsageCertSign, true
	between.ExcludedIPRanges = []*net.IPNet{{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}
	between.PermittedDNSDomainsCritical = true
	between.PermittedDNSDomains = []string{"quotactl.invalid"} // without any, it could vouch for all
	for _, host := range hosts {
		if net.ParseIP(host) == nil {
			between.PermittedDNSDomains = append(between.PermittedDNSDomains, strings.TrimPrefix(host, "*."))
		}
	}
	if slices.Contains(hosts, "*") {
		between.PermittedDNSDomains = nil
	}
	var rootKey *ecdsa.PrivateKey
	var err error
	if a.root, rootKey, err = sign(root, root, nil); err == nil {
		a.intermediate, a.key, err = sign(between, a.root, rootKey)
	}
	if err != nil {
		return nil, fmt.Errorf("make a CA for %q: %w; is each of these a host's name?", hosts, err)
	}
	return a, nil
}

// template has a name of its own: programs look issuers up by name, and may trust several runs.
func template(from, to time.Time) *x509.Certificate {
	name := pkix.Name{CommonName: "quotactl meter " + rand.Text()}
	return &x509.Certificate{Subject: name, NotBefore: from, NotAfter: to, BasicConstraintsValid: true}
}

// sign makes a certificate and its key. Without the parent's key, the certificate signs itself.
func sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, nil, err
	}
	signed, err := x509.ParseCertificate(der)
	return signed, key, err
}

// leaf returns the certificate of a host, by the name that a handshake asks for: the same one each
// time. It is an error if the host is not metered.
func (a *authority) leaf(name string) (*tls.Certificate, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if net.ParseIP(name) != nil || !budgethttp.Covers(a.hosts, name) {
		return nil, fmt.Errorf("make a certificate for %q: it is not a metered host", name)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if made := a.leaves[name]; made != nil {
		return made, nil
	}
	leaf := template(a.intermediate.NotBefore, a.intermediate.NotAfter)
	leaf.DNSNames, leaf.KeyUsage, leaf.ExtKeyUsage = []string{name}, x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	signed, key, err := sign(leaf, a.intermediate, a.key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %q: %w", name, err)
	}
	a.leaves[name] = &tls.Certificate{Certificate: [][]byte{signed.Raw, a.intermediate.Raw}, PrivateKey: key, Leaf: signed}
	return a.leaves[name], nil
}

// pem is the root, which programs have to trust.
func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.root.Raw})
}
