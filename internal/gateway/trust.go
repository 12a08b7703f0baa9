package gateway

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
)

// Variables that name files with roots: those that name the run's bundle; two that do so only if
// need be, since requests lets them override what a session verifies by; and two that would win
// over ours.
var (
	bundleVariables = []string{
		"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "HTTPLIB2_CA_CERTS", "PIP_CERT", "CARGO_HTTP_CAINFO",
		"NPM_CONFIG_CAFILE", "DENO_CERT", "PERL_LWP_SSL_CA_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	}
	strictVariables  = []string{"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}
	removedVariables = []string{"SSL_CERT_DIR", "npm_config_cafile"}
)

// systemRoots are where systems keep their roots: Debian, Fedora, RHEL, SUSE, Alpine and BSDs; or
// in files of a folder. The first that has some counts.
var systemRoots = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem", "/etc/ssl/certs",
}

// trust is a set of roots.
type trust struct {
	roots *x509.CertPool
	certs []*x509.Certificate
	pem   []byte
	said  []string // what could not be used
}

// trustedBefore is what programs trust in an environment: the system's roots, and the files that
// any of the variables names.
func trustedBefore(env environment) *trust {
	t := &trust{roots: x509.NewCertPool()}
	if runtime.GOOS == "darwin" {
		t.addKeychains()
	}
	_ = slices.ContainsFunc(systemRoots, t.addPath)
	done := map[string]bool{"": true}
	for _, variable := range slices.Concat(bundleVariables, strictVariables, removedVariables) {
		for _, path := range filepath.SplitList(env[variable]) {
			if _, err := os.Lstat(path); err == nil && !done[path] && !t.addPath(path) {
				t.said = append(t.said, fmt.Sprintf("%s names %s, where no certificate can be read", variable, path))
			}
			done[path] = true
		}
	}
	if len(t.certs) == 0 {
		t.said = append(t.said, "no root certificates are installed, so no upstream can be verified: install ca-certificates, or name a file by SSL_CERT_FILE")
	}
	return t
}

// addKeychains adds what macOS trusts; its own pool knows what the user distrusts.
func (t *trust) addKeychains() {
	for _, keychain := range []string{"/System/Library/Keychains/SystemRootCertificates.keychain", "/Library/Keychains/System.keychain"} {
		if out, err := exec.Command("/usr/bin/security", "find-certificate", "-a", "-p", keychain).Output(); err == nil {
			t.add(out)
		}
	}
	if pool, err := x509.SystemCertPool(); err == nil {
		t.roots = pool
	}
}

// addPath adds a file's certificates, or those of a folder's files. It is false if there are none.
func (t *trust) addPath(path string) (found bool) {
	files, _ := filepath.Glob(filepath.Join(path, "*"))
	for _, file := range append(files, path) {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			if data, err := os.ReadFile(file); err == nil && t.add(data) {
				found = true
			}
		}
	}
	return found
}

// add adds the certificates of a text in PEM; keys are left out. It is false if there are none.
func (t *trust) add(text []byte) (found bool) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil || block.Type != "CERTIFICATE" {
			continue
		}
		found = true
		if !slices.ContainsFunc(t.certs, cert.Equal) {
			t.certs = append(t.certs, cert)
			t.roots.AddCert(cert)
			t.pem = append(t.pem, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: cert.Raw})...)
		}
	}
	return found
}

// storePassword guards nothing: the format has a checksum that begins with it.
const storePassword = "quotactl"

// keyStore writes roots as a Java key store (JKS).
func keyStore(roots []*x509.Certificate, now time.Time) ([]byte, error) {
	store := keystore.New(keystore.WithOrderedAliases())
	for i, root := range roots {
		// The entry is complete, and so there is no error.
		_ = store.SetTrustedCertificateEntry(fmt.Sprintf("root%d", i), keystore.TrustedCertificateEntry{
			CreationTime: now, Certificate: keystore.Certificate{Type: "X.509", Content: root.Raw},
		})
	}
	var text bytes.Buffer
	err := store.Store(&text, []byte(storePassword))
	return text.Bytes(), err
}
