package gateway

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// shown is a variable with DIR for the command's folder, or "unset".
func shown(s *surroundings, name string) string {
	value, ok := newEnvironment(s.env)[name]
	if !ok {
		return "unset"
	}
	return strings.ReplaceAll(value, s.folder, "DIR")
}

func TestVariables(t *testing.T) {
	const proxy, exempt = "http://meter:s3cret@127.0.0.1:4711", "localhost,127.0.0.1,::1,169.254.169.254,169.254.170.2,fd00:ec2::254,metadata.google.internal"
	o := testOptions(t, "PATH=/bin", "EMPTY=", "HOME="+t.TempDir())
	s, _ := surrounded(t, o)
	got := []string{}
	for _, entry := range s.env {
		got = append(got, strings.ReplaceAll(entry, s.folder, "DIR"))
	}
	slices.Sort(got)
	home := newEnvironment(o.env)["HOME"]
	check.EqualSlices(t, got, []string{
		"AWS_CA_BUNDLE=DIR/bundle.pem", "CARGO_HTTP_CAINFO=DIR/bundle.pem", "DENO_CERT=DIR/bundle.pem", "EMPTY=",
		"GIT_SSL_CAINFO=DIR/bundle.pem", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=DIR/bundle.pem", "HOME=" + home,
		"HTTPLIB2_CA_CERTS=DIR/bundle.pem", "HTTPS_PROXY=" + proxy, "HTTP_PROXY=" + proxy,
		"NODE_EXTRA_CA_CERTS=DIR/bundle.pem", "NODE_OPTIONS=--require DIR/hook.cjs", "NODE_USE_ENV_PROXY=1",
		"NO_PROXY=" + exempt, "NPM_CONFIG_CAFILE=DIR/bundle.pem", "PATH=/bin", "PERL_LWP_ENV_PROXY=1",
		"PERL_LWP_SSL_CA_FILE=DIR/bundle.pem", "PHP_INI_SCAN_DIR=:DIR", "PIP_CERT=DIR/bundle.pem", "PYTHONPATH=DIR",
		"QUOTACTL_METER=127.0.0.1:4711", "QUOTACTL_METER_CA=DIR/root.pem", "QUOTACTL_METER_HOSTS=api.example.com",
		"SSL_CERT_FILE=DIR/bundle.pem", "WGETRC=DIR/wgetrc",
		"http_proxy=" + proxy, "https_proxy=" + proxy, "no_proxy=" + exempt,
	})
	check.EqualSlices(t, s.said, nil)
}

// TestVariablesThatWereSet is a table of what was set, and what a variable is then.
func TestVariablesThatWereSet(t *testing.T) {
	const java = "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=4712 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=4712 " +
		"-Djavax.net.ssl.trustStoreType=JKS -Djavax.net.ssl.trustStorePassword=quotactl -Djavax.net.ssl.trustStore=DIR/roots.jks"
	uid := strconv.Itoa(os.Geteuid())
	plain := func(*surroundOptions) {}
	noHooks := func(o *surroundOptions) { o.noHooks = true }
	direct := func(o *surroundOptions) { o.direct = "127.0.0.1:4712" }
	javaToo := func(o *surroundOptions) { o.direct, o.java = "127.0.0.1:4712", true }
	for _, c := range []struct {
		set, variable, want string
		change              func(*surroundOptions)
	}{
		{"https_proxy=http://corp:3128", "https_proxy", "http://meter:s3cret@127.0.0.1:4711", plain},
		{"SSL_CERT_DIR=/nowhere", "SSL_CERT_DIR", "unset", plain},
		{"npm_config_cafile=/nowhere", "npm_config_cafile", "unset", plain},
		{"CURL_CA_BUNDLE=/nowhere", "CURL_CA_BUNDLE", "DIR/bundle.pem", plain},
		{"CURL_CA_BUNDLE=/nowhere", "REQUESTS_CA_BUNDLE", "DIR/bundle.pem", plain},
		{"REQUESTS_CA_BUNDLE=/nowhere", "CURL_CA_BUNDLE", "DIR/bundle.pem", plain},
		{"REQUESTS_CA_BUNDLE=", "REQUESTS_CA_BUNDLE", "", plain},
		{"X=", "REQUESTS_CA_BUNDLE", "unset", plain},
		{"X=", "REQUESTS_CA_BUNDLE", "DIR/bundle.pem", noHooks},
		{"X=", "CURL_CA_BUNDLE", "DIR/bundle.pem", noHooks},
		{"PHP_INI_SCAN_DIR=/etc/php:", "PHP_INI_SCAN_DIR", "/etc/php::DIR", plain},
		{"PYTHONPATH=/lib:/lib2", "PYTHONPATH", "DIR:/lib:/lib2", plain},
		{"PYTHONPATH=", "PYTHONPATH", "DIR", plain},
		{"PYTHONPATH=/lib", "PYTHONPATH", "/lib", noHooks},
		{"X=", "PYTHONPATH", "unset", noHooks},
		{"NODE_OPTIONS=--max-old-space-size=99", "NODE_OPTIONS", "--max-old-space-size=99 --require DIR/hook.cjs", plain},
		{"NODE_OPTIONS=--trace-gc", "NODE_OPTIONS", "--trace-gc", noHooks},
		{"QUOTACTL_METER_DIRECT=127.0.0.1:1", "QUOTACTL_METER_DIRECT", "unset", plain}, // another meter's
		{"QUOTACTL_METER_UID=1", "QUOTACTL_METER_UID", "unset", plain},
		{"QUOTACTL_METER_CA=/outer", "QUOTACTL_METER_CA", "unset", noHooks},
		{"QUOTACTL_METER_HOSTS=outer", "QUOTACTL_METER_HOSTS", "api.example.com", noHooks},
		{"QUOTACTL_METER=127.0.0.1:1", "QUOTACTL_METER", "127.0.0.1:4711", plain},
		{"X=", "QUOTACTL_METER_DIRECT", "127.0.0.1:4712", direct},
		{"X=", "QUOTACTL_METER_UID", uid, direct},
		{"X=", "QUOTACTL_METER_DIRECT", "unset", func(o *surroundOptions) { o.noHooks, o.direct = true, "127.0.0.1:4712" }},
		{"X=", "JAVA_TOOL_OPTIONS", "unset", direct},
		{"X=", "JAVA_TOOL_OPTIONS", java, javaToo},
		{"JAVA_TOOL_OPTIONS=-Xmx9m", "JAVA_TOOL_OPTIONS", "-Xmx9m " + java, javaToo},
		{"JAVA_TOOL_OPTIONS=-Xmx9m", "JAVA_TOOL_OPTIONS", "-Xmx9m", plain},
		{"NO_PROXY=*", "no_proxy", "localhost,127.0.0.1,::1,169.254.169.254,169.254.170.2,fd00:ec2::254,metadata.google.internal", plain},
		{"TWICE=first\nTWICE=second", "TWICE", "first", plain},
	} {
		o := testOptions(t, append(strings.Split(c.set, "\n"), "HOME="+t.TempDir())...)
		c.change(&o)
		s, _ := surrounded(t, o)
		check.Equal(t, shown(s, c.variable), c.want, c.set)
		check.EqualSlices(t, o.env[:1], []string{strings.Split(c.set, "\n")[0]}, "what it was made from")
	}
}

// TestToken: a token may have any letters.
func TestToken(t *testing.T) {
	o := testOptions(t)
	o.token = "a/b@c:d %?#"
	_, env := surrounded(t, o)
	password, _ := must.Get(url.Parse(env["HTTPS_PROXY"]))(t).User.Password()
	check.Equal(t, password, o.token)
}

func TestWget(t *testing.T) {
	home := t.TempDir()
	for _, c := range []struct {
		file, env, want string
		mode            os.FileMode
	}{
		{"", "HOME=" + home, "ca_certificate = BUNDLE\n", 0o644},
		{"", "X=", "ca_certificate = BUNDLE\n", 0o644},
		{".wgetrc", "HOME=" + home, "password = x\nca_certificate = BUNDLE\n", 0o600},
		{"other", "WGETRC=" + filepath.Join(home, "other"), "password = x\nca_certificate = BUNDLE\n", 0o600},
	} {
		if c.file != "" {
			must.Do(t, os.WriteFile(filepath.Join(home, c.file), []byte("password = x"), 0o600))
		}
		s, env := surrounded(t, testOptions(t, c.env))
		text := string(must.Get(os.ReadFile(env["WGETRC"]))(t))
		check.Equal(t, strings.ReplaceAll(text, filepath.Join(s.folder, "bundle.pem"), "BUNDLE"), c.want)
		check.Equal(t, must.Get(os.Stat(env["WGETRC"]))(t).Mode().Perm(), c.mode)
	}
	s, _ := surrounded(t, testOptions(t, "WGETRC="+home))
	check.Contains(t, strings.Join(s.said, "\n"), "wget runs without its settings: read "+home)
}

// TestPHP: PHP reads the file beside those that it has compiled in.
func TestPHP(t *testing.T) {
	effort.Processes(t)
	s, _ := surrounded(t, testOptions(t, os.Environ()...))
	php := exec.CommandContext(t.Context(), "php", "-r", `echo ini_get("curl.cainfo"), "\n", ini_get("openssl.cafile"), "\n";`)
	php.Env = s.env
	bundle := filepath.Join(s.folder, "bundle.pem")
	check.Equal(t, string(must.Get(php.Output())(t)), bundle+"\n"+bundle+"\n")
}

// TestProxyBefore: the proxy that was set before is that of the process, whose environment is read
// once.
func TestProxyBefore(t *testing.T) {
	if os.Getenv("GATEWAY_TEST_PROXY") != "" {
		s, _ := surrounded(t, testOptions(t, os.Environ()...))
		for _, address := range []string{"https://api.example.com/x", "http://api.example.com/", "https://inside.corp/", "https://localhost/"} {
			proxy, err := s.upstreamProxy(must.Get(url.Parse(address))(t))
			must.Do(t, err)
			if proxy != nil {
				address += " by " + proxy.String()
			}
			_, _ = os.Stdout.WriteString(address + "\n")
		}
		return
	}
	effort.Processes(t)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxyBefore$")
	child.Env = append(os.Environ(), "GATEWAY_TEST_PROXY=1", "HTTPS_PROXY=http://u:p@corp:3128", "http_proxy=corp:3129", "NO_PROXY=.corp")
	out := string(must.Get(child.Output())(t))
	check.Contains(t, out, "https://api.example.com/x by http://u:p@corp:3128\nhttp://api.example.com/ by http://corp:3129\nhttps://inside.corp/\nhttps://localhost/\n")
}
