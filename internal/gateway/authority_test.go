package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// testNow is when the authorities of the tests are made.
var testNow = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func newTestAuthority(t *testing.T, hosts ...string) *authority {
	t.Helper()
	return must.Get(newAuthority(hosts, testNow))(t)
}

// verify is how a program that trusts the authority takes a chain for a host at an instant.
func (a *authority) verify(t *testing.T, chain *tls.Certificate, host string, at time.Time) error {
	t.Helper()
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.pem()) {
		t.Fatal("the root is not PEM")
	}
	for _, der := range chain.Certificate[1:] {
		between.AddCert(must.Get(x509.ParseCertificate(der))(t))
	}
	first := must.Get(x509.ParseCertificate(chain.Certificate[0]))(t)
	_, err := first.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: between, CurrentTime: at})
	return err
}

func TestLeaves(t *testing.T) {
	a := newTestAuthority(t, "api.example.com", "*.myshopify.com", "10.1.2.3")
	for name, host := range map[string]string{
		"api.example.com": "api.example.com", "API.Example.COM.": "api.example.com",
		"one.myshopify.com": "one.myshopify.com", "a.b.myshopify.com": "a.b.myshopify.com",
	} {
		leaf := must.Get(a.leaf(name))(t)
		check.NoError(t, a.verify(t, leaf, host, testNow), name)
		check.NoError(t, a.verify(t, leaf, host, testNow.Add(-23*time.Hour)), name, "with a slow clock")
		check.NoError(t, a.verify(t, leaf, host, testNow.AddDate(0, 0, 397)), name, "in a year")
		if a.verify(t, leaf, "other.example.com", testNow) == nil {
			t.Errorf("the certificate of %s is also one of other.example.com", name)
		}
	}
	for _, name := range []string{
		"", ".", "example.com", "x.api.example.com", "myshopify.com", ".myshopify.com", "evilmyshopify.com",
		"myshopify.com.evil.org", "10.1.2.3", "::1", "*.myshopify.com\x00", "api.example.com..",
	} {
		if leaf, err := a.leaf(name); err == nil {
			t.Errorf("a certificate for %q: %v", name, leaf.Leaf.DNSNames)
		}
	}
}

// TestConstraints signs leaves for hosts that are not metered with the intermediate's own key, as
// a thief of the key would.
func TestConstraints(t *testing.T) {
	for _, hosts := range [][]string{{"api.example.com", "*.myshopify.com"}, {"10.1.2.3"}, {}} {
		a := newTestAuthority(t, hosts...)
		for _, name := range []string{"www.google.com", "example.com", "api.example.org", "com", "10.1.2.3", "8.8.8.8", "::1", "2001:db8::1"} {
			forged := template(a.intermediate.NotBefore, a.intermediate.NotAfter)
			forged.DNSNames = []string{name}
			if ip := net.ParseIP(name); ip != nil {
				forged.DNSNames, forged.IPAddresses = nil, []net.IP{ip}
			}
			signed, _, err := sign(forged, a.intermediate, a.key)
			must.Do(t, err)
			err = a.verify(t, &tls.Certificate{Certificate: [][]byte{signed.Raw, a.intermediate.Raw}}, name, testNow)
			var invalid x509.CertificateInvalidError
			if !errors.As(err, &invalid) || invalid.Reason != x509.CANotAuthorizedForThisName {
				t.Errorf("hosts %v, a forged certificate for %s: %v", hosts, name, err)
			}
		}
	}
}

// TestNoFurtherAuthority: the intermediate can vouch for hosts, not for other authorities.
func TestNoFurtherAuthority(t *testing.T) {
	a := newTestAuthority(t, "api.example.com")
	further := template(a.intermediate.NotBefore, a.intermediate.NotAfter)
	further.IsCA, further.KeyUsage = true, x509.KeyUsageCertSign
	second, secondKey, err := sign(further, a.intermediate, a.key)
	must.Do(t, err)
	last := template(further.NotBefore, further.NotAfter)
	last.DNSNames = []string{"api.example.com"}
	signed, _, err := sign(last, second, secondKey)
	must.Do(t, err)
	if a.verify(t, &tls.Certificate{Certificate: [][]byte{signed.Raw, second.Raw, a.intermediate.Raw}}, "api.example.com", testNow) == nil {
		t.Error("an authority below the intermediate is trusted")
	}
}

func TestOneLeafForAHost(t *testing.T) {
	a := newTestAuthority(t, "*.example.com")
	leaves := make([]*tls.Certificate, 64)
	var all sync.WaitGroup
	for i := range leaves {
		all.Go(func() { leaves[i], _ = a.leaf([]string{"a.example.com", "A.example.com."}[i%2]) })
	}
	all.Wait()
	for _, leaf := range leaves {
		check.Equal(t, leaf, leaves[0])
	}
	check.Equal(t, len(a.leaves), 1)
	if must.Get(a.leaf("b.example.com"))(t) == leaves[0] {
		t.Error("two hosts have one certificate")
	}
}

// TestRunsApart: programs find issuers by name, so two runs' authorities have different ones.
func TestRunsApart(t *testing.T) {
	one, two := newTestAuthority(t, "a.example.com"), newTestAuthority(t, "a.example.com")
	if one.intermediate.Issuer.String() == two.intermediate.Issuer.String() {
		t.Error("two roots have the same name")
	}
	if two.verify(t, must.Get(one.leaf("a.example.com"))(t), "a.example.com", testNow) == nil {
		t.Error("one run's certificate is trusted in another run")
	}
}

func TestBadHost(t *testing.T) {
	if _, err := newAuthority([]string{"a..b"}, testNow); err == nil {
		t.Error("a..b is a host")
	}
}
