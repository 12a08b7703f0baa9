package gateway

import (
	"bytes"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/certtest"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// newRoot is another root, in PEM.
func newRoot(t *testing.T) string {
	t.Helper()
	return string(newTestAuthority(t).pem())
}

// TestBundle: the bundle has the roots of each file that any variable names, once, and the run's;
// the proxy's roots are the same but for the run's.
func TestBundle(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	env, roots := []string{"SSL_CERT_DIR=" + dir + "/a:" + dir + "/missing:" + dir + "/b"}, []string{}
	add := func() string { roots = append(roots, newRoot(t)); return roots[len(roots)-1] }
	put("a/one.pem", add())
	put("a/two.0", add()+"noise\n"+add())
	put("b/x", add())
	must.Do(t, os.Symlink(put("elsewhere", add()), filepath.Join(dir, "b/link")))
	must.Do(t, os.Symlink("..", filepath.Join(dir, "b/up")))
	put("a/README", "no certificate, and nobody says so")
	for _, variable := range append([]string{"CURL_CA_BUNDLE", "npm_config_cafile"}, bundleVariables...) {
		env = append(env, variable+"="+put(variable, add()))
	}
	put("certs/1", add())
	env = append(env, "REQUESTS_CA_BUNDLE="+dir+"/certs") // requests takes folders too

	o := testOptions(t, env...)
	s, vars := surrounded(t, o)
	check.EqualSlices(t, s.said, nil)
	bundle := string(must.Get(os.ReadFile(vars["SSL_CERT_FILE"]))(t))
	for _, root := range append(roots, string(o.ca)) {
		check.Equal(t, strings.Count(bundle, root), 1)
	}
	trusted := trustedBefore(newEnvironment(env))
	check.Equal(t, s.roots.Equal(trusted.roots), true, "the proxy's roots")
	trusted.add(o.ca)
	check.Equal(t, s.roots.Equal(trusted.roots), false, "the proxy trusts the run's root")
	check.Equal(t, len(trusted.certs), strings.Count(bundle, "BEGIN CERTIFICATE"))
}

// TestNested: a meter within a meter trusts what the outer one's programs do.
func TestNested(t *testing.T) {
	outer := testOptions(t)
	s, vars := surrounded(t, outer)
	_, inner := surrounded(t, testOptions(t, s.env...))
	bundle := string(must.Get(os.ReadFile(inner["SSL_CERT_FILE"]))(t))
	check.Contains(t, bundle, string(outer.ca))
	check.Equal(t, strings.HasSuffix(inner["PYTHONPATH"], ":"+vars["PYTHONPATH"]), true)
}

// TestBadFiles: a file that cannot be used is no error; the user learns of it, unless it does not
// exist.
func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.pem")
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("not DER")})
	must.Do(t, os.WriteFile(bad, broken, 0o644))
	s, _ := surrounded(t, testOptions(t, "PIP_CERT="+bad, "DENO_CERT="+bad, "NODE_EXTRA_CA_CERTS=/dev/null", "AWS_CA_BUNDLE="+dir+"/missing"))
	check.EqualSlices(t, s.said, []string{
		"NODE_EXTRA_CA_CERTS names /dev/null, where no certificate can be read",
		"PIP_CERT names " + bad + ", where no certificate can be read",
	})
}

// TestKeys: a key beside a certificate is not copied.
func TestKeys(t *testing.T) {
	cert, key := certtest.SelfSigned(t, t.TempDir())
	both := filepath.Join(t.TempDir(), "both.pem")
	text := must.Get(os.ReadFile(cert))(t)
	must.Do(t, os.WriteFile(both, append(must.Get(os.ReadFile(key))(t), text...), 0o600))
	_, vars := surrounded(t, testOptions(t, "SSL_CERT_FILE="+both))
	bundle := must.Get(os.ReadFile(vars["SSL_CERT_FILE"]))(t)
	check.Equal(t, bytes.Contains(bundle, text), true)
	check.Equal(t, bytes.Contains(bundle, []byte("PRIVATE KEY")), false)
}

// TestKeystore: Java's own tool reads the store, with the password and without.
func TestKeystore(t *testing.T) {
	effort.Processes(t)
	o := testOptions(t, "SSL_CERT_DIR=/nowhere")
	o.java, o.direct = true, "127.0.0.1:4712"
	s, vars := surrounded(t, o)
	count := strings.Count(string(must.Get(os.ReadFile(vars["SSL_CERT_FILE"]))(t)), "BEGIN CERTIFICATE")
	for _, words := range [][]string{{"-storepass", storePassword}, {"-storetype", "JKS", "-storepass", storePassword}} {
		list := exec.CommandContext(t.Context(), "keytool", append([]string{"-J-Duser.language=en", "-list", "-keystore", filepath.Join(s.folder, "roots.jks")}, words...)...)
		out := string(must.Get(list.Output())(t))
		check.Equal(t, strings.Count(out, "trustedCertEntry"), count)
	}
}
