package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"time"
)

// authority makes the certificates of one run. Its root has signed one intermediate, which can
// vouch for the metered hosts alone, and the root's key is gone: some programs do not hold a root
// to its constraints, but all hold an intermediate to them. The intermediate's key exists in
// memory only.
type authority struct {
	hosts        []string
	root         []byte // DER
	intermediate *x509.Certificate
	key          *ecdsa.PrivateKey // the intermediate's

	mu     sync.Mutex
	leaves map[string]*tls.Certificate // by host
}

// newAuthority makes the authority for hosts: names in small letters; one that begins with "*."
// stands for all hosts below it. Its certificates are valid from a day before now, for clocks that
// are slow, to 398 days after.
func newAuthority(hosts []string, now time.Time) (*authority, error) {
	a := &authority{hosts: hosts, leaves: map[string]*tls.Certificate{}}
	root := newCertificate("root", now.AddDate(0, 0, -1), now.AddDate(0, 0, 398))
	root.IsCA, root.KeyUsage, root.MaxPathLen = true, x509.KeyUsageCertSign, 1
	signed, rootKey, err := sign(root, root, nil)
	if err != nil {
		return nil, err
	}
	a.root = signed.Raw
	intermediate := newCertificate("intermediate", root.NotBefore, root.NotAfter)
	intermediate.IsCA, intermediate.KeyUsage, intermediate.MaxPathLenZero = true, x509.KeyUsageCertSign, true
	intermediate.PermittedDNSDomainsCritical = true
	intermediate.PermittedDNSDomains = constraints(hosts)
	intermediate.ExcludedIPRanges = []*net.IPNet{
		{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
		{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
	}
	a.intermediate, a.key, err = sign(intermediate, signed, rootKey)
	return a, err
}

// constraints are the domains that certificates may name. There is always one: a certificate
// without any may name every host. It covers no host that exists.
func constraints(hosts []string) []string {
	domains := []string{"quotactl.invalid"}
	for _, host := range hosts {
		if net.ParseIP(host) == nil { // an address is no domain; none has a certificate
			domains = append(domains, strings.TrimPrefix(host, "*."))
		}
	}
	return domains
}

// newCertificate returns what all certificates of a run have. The name is one of its own: programs
// look issuers up by name, and may have the certificates of several runs.
func newCertificate(role string, from, to time.Time) *x509.Certificate {
	var random [16]byte
	_, _ = rand.Read(random[:])
	random[0] = random[0]&0x7f | 0x40 // a serial number is positive, and of constant length
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(random[:]), NotBefore: from, NotAfter: to, BasicConstraintsValid: true,
		Subject: pkix.Name{CommonName: "quotactl meter " + role + " " + hex.EncodeToString(random[:8])},
	}
}

// sign makes a certificate with a new key. Without the parent's key it signs itself.
func sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for %s: %w", template.Subject.CommonName, err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		return nil, nil, fmt.Errorf("sign %s: %w", template.Subject.CommonName, err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("read what was signed for %s: %w; is each metered host a name?", template.Subject.CommonName, err)
	}
	return signed, key, nil
}

// leaf returns the certificate for a host by the name that a program asks for in its handshake.
// The same host has the same certificate. It is an error if the host is not metered.
func (a *authority) leaf(name string) (*tls.Certificate, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if net.ParseIP(name) != nil || !covered(a.hosts, name) {
		return nil, fmt.Errorf("make a certificate for %q: it is not a metered host", name)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if made := a.leaves[name]; made != nil {
		return made, nil
	}
	template := newCertificate("leaf", a.intermediate.NotBefore, a.intermediate.NotAfter)
	template.DNSNames, template.KeyUsage = []string{name}, x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	signed, key, err := sign(template, a.intermediate, a.key)
	if err != nil {
		return nil, err
	}
	a.leaves[name] = &tls.Certificate{Certificate: [][]byte{signed.Raw, a.intermediate.Raw}, PrivateKey: key, Leaf: signed}
	return a.leaves[name], nil
}

// pem is the root's certificate, which programs have to trust.
func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.root})
}

// covered reports whether a host is one of hosts, or below one that begins with "*.".
func covered(hosts []string, name string) bool {
	for _, host := range hosts {
		below, pattern := strings.CutPrefix(host, "*")
		if host == name || pattern && len(name) > len(below) && strings.HasSuffix(name, below) {
			return true
		}
	}
	return false
}
