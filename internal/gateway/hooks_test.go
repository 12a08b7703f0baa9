package gateway

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// hooked is a place for programs with hooks: no name that ends in .test exists, so that a program
// that gets an answer has it from the listener that goes by SNI.
type hooked struct {
	*surroundings
	dir string // for the program's own files
}

// answer is what the listener's server answers.
func answer(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "%s %s for %s", r.Proto, r.Host, r.TLS.ServerName)
}

func newHooked(t *testing.T, change func(*surroundOptions)) *hooked {
	t.Helper()
	effort.Processes(t)
	hosts := []string{"api.metered.test", "*.shops.test", "xn--bcher-kva.test", "localhost"}
	a := must.Get(newAuthority(hosts, time.Now()))(t)
	address := "127.0.0.1:0"
	if runtime.GOOS == "linux" { // where the whole network 127 is this machine
		address = "127.81.82.83:0"
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(answer))
	server.Listener = must.Get(net.Listen("tcp", address))(t)
	server.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return a.leaf(hello.ServerName)
	}}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	h := &hooked{dir: t.TempDir()}
	o := surroundOptions{
		env: append(os.Environ(), "HOME="+h.dir), hosts: hosts, proxy: "127.0.0.1:1", ca: a.pem(),
		direct: server.Listener.Addr().String(), temp: t.TempDir(),
	}
	if change != nil {
		change(&o)
	}
	h.surroundings, _ = surrounded(t, o)
	h.env = append(h.env, "NODE_USE_ENV_PROXY=0") // there is no proxy; the hooks alone are under test
	must.Do(t, os.WriteFile(filepath.Join(h.dir, "own.pem"), []byte(newRoot(t)), 0o644))
	return h
}

// run runs a program's text with further variables, and returns what it printed, on both streams.
func (h *hooked) run(t *testing.T, command, name, text string, env ...string) string {
	t.Helper()
	path := filepath.Join(h.dir, name)
	must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	cmd := exec.CommandContext(t.Context(), command, path)
	cmd.Env, cmd.Dir = append(h.env, env...), h.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

const pythonGet = `
import asyncio, http.client, socket, ssl
def get(host, context=None, connect=None):
    c = http.client.HTTPSConnection(host, context=context)
    if connect:
        c.sock = (context or ssl.create_default_context()).wrap_socket(connect(host), server_hostname=host)
    c.request("GET", "/")
    return c.getresponse().read().decode()
def own(path="own.pem"):
    return ssl.create_default_context(cafile=path)
`

func TestPython(t *testing.T) {
	h := newHooked(t, nil)
	listener := newEnvironment(h.env)["QUOTACTL_METER_DIRECT"]
	ip, port, _ := net.SplitHostPort(listener)
	at := fmt.Sprintf("('%s', %s)", ip, port)
	const metered = "HTTP/1.1 api.metered.test for api.metered.test"
	cases := []struct{ name, text, want string }{
		{"plain", `print(get("api.metered.test"))`, metered},
		{"own roots", `print(get("api.metered.test", own()))`, metered},
		{"roots in memory", `c = ssl.create_default_context(cadata=open("own.pem").read()); print(get("api.metered.test", c))`, metered},
		{"own variable", `import os; os.environ["SSL_CERT_FILE"] = "own.pem"; print(get("api.metered.test"))`, metered},
		{"below", `print(get("one.shops.test"), get("a.b.shops.test"))`, "HTTP/1.1 one.shops.test for one.shops.test HTTP/1.1 a.b.shops.test for a.b.shops.test"},
		{"by parts", `def connect(host):
    family, kind, proto, _, address = socket.getaddrinfo(host, "https", type=socket.SOCK_STREAM)[0]
    s = socket.socket(family, kind, proto); s.connect(address); return s
print(get("api.metered.test", own(), connect))`, metered},
		{"IPv6 alone", `def connect(host):
    family, kind, proto, _, address = socket.getaddrinfo(host, 443, socket.AF_INET6, socket.SOCK_STREAM)[0]
    s = socket.socket(family, kind, proto); s.connect(address); return s
print(get("api.metered.test", own(), connect))`, metered},
		{"asyncio", `async def main():
    r, w = await asyncio.open_connection("api.metered.test", 443, ssl=own())
    w.write(b"GET / HTTP/1.0\r\nHost: api.metered.test\r\n\r\n")
    print((await r.read()).decode().split("\r\n\r\n")[1])
asyncio.run(main())`, "HTTP/1.0 api.metered.test for api.metered.test"},
		{"names", `for host in ("API.Metered.test.", b"api.metered.test", bytearray(b"api.metered.test"), "bücher.test", "x.shops.test"):
    print(socket.getaddrinfo(host=host, port=443, proto=socket.IPPROTO_TCP)[0][4])`, strings.Repeat(at+"\n", 4) + at},
		{"ports", `for port in (443, "443", b"443", "https", b"https"):
    print(socket.getaddrinfo("api.metered.test", port)[0][4])`, strings.Repeat(at+"\n", 4) + at},
		{"others", `for args in (("localhost", 80), ("localhost", None), ("localhost", 443, 0, socket.SOCK_DGRAM), ("127.0.0.1", 443), ("::1", 443), (None, 443), ("", 443)):
    try:
        found = [a[4][:2] for a in socket.getaddrinfo(*args)]
    except OSError:
        found = []
    print(any(a == ` + at + ` for a in found))`, strings.Repeat("False\n", 6) + "False"},
		{"errors", `for args in ((5, 443), ("a..b", 443), ("x" * 70, 443), ("shops.test", 443), ("api.metered.test", 443, 99)):
    try:
        print(socket.getaddrinfo(*args))
    except Exception as e:
        print("UnicodeError" if isinstance(e, UnicodeError) else type(e).__name__)`, "TypeError\nUnicodeError\nUnicodeError\ngaierror\ngaierror"},
		{"load fails", `try:
    own("missing.pem")
except FileNotFoundError as e:
    print(type(e).__name__)`, "FileNotFoundError"},
		{"as gevent asks", `import _socket; print(_socket.getaddrinfo("api.metered.test", 443, 0, socket.SOCK_STREAM)[0][4])`, at},
		{"path", `import sys; print([p for p in sys.path if "quotactl-meter" in p], "sitecustomize" in sys.modules)`, "[] True"},
	}
	if runtime.GOOS == "linux" {
		cases = append(cases, struct{ name, text, want string }{"address alone", `def connect(host):
    s = socket.socket(); s.connect((socket.getaddrinfo(host, 443)[0][4][0], 443)); return s
def connect_ex(host):
    s = socket.socket(); assert s.connect_ex((socket.getaddrinfo(host, 443)[0][4][0], 443)) == 0; return s
print(get("api.metered.test", own(), connect), get("api.metered.test", own(), connect_ex))`, metered + " " + metered})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { check.Equal(t, h.run(t, "python3", "program.py", pythonGet+c.text), c.want) })
	}
}

// TestPythonBeside: without a listener, for another user, and with variables that are damaged,
// nothing is redirected and nothing fails.
func TestPythonBeside(t *testing.T) {
	const text = pythonGet + `
print([a[4][1] for a in socket.getaddrinfo("localhost", 443, type=socket.SOCK_STREAM)][0], own().cert_store_stats()["x509_ca"])`
	for _, c := range []struct{ name, set, want string }{
		{"no listener", "QUOTACTL_METER_DIRECT=", "443 2"},
		{"another user", "QUOTACTL_METER_UID=4242", "443 2"},
		{"a bad listener", "QUOTACTL_METER_DIRECT=nonsense", "443 1"},
		{"no CA", "QUOTACTL_METER_CA=/missing", "443 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHooked(t, nil)
			h.env = append(h.env, "QUOTACTL_METER_UID=4242")
			check.Equal(t, h.run(t, "python3", "program.py", text, c.set), c.want)
		})
	}
}

// TestSitecustomize: the one that was there runs, first, as if it were alone.
func TestSitecustomize(t *testing.T) {
	const program = `import sys, socket; print(getattr(sys.modules.get("sitecustomize"), "mine", None), hasattr(socket, "quotactl_meter"))`
	for _, c := range []struct{ name, theirs, want string }{
		{"works", "import socket\nmine = not hasattr(socket, 'quotactl_meter')", "True True"},
		{"fails", "raise ValueError('theirs')", "Error in sitecustomize; set PYTHONVERBOSE for traceback:\nValueError: theirs\nNone True"},
		{"lacks a module", "import nowhere", "Error in sitecustomize; set PYTHONVERBOSE for traceback:\nModuleNotFoundError: No module named 'nowhere'\nNone True"},
	} {
		t.Run(c.name, func(t *testing.T) {
			theirs := t.TempDir()
			must.Do(t, os.WriteFile(filepath.Join(theirs, "sitecustomize.py"), []byte(c.theirs), 0o644))
			h := newHooked(t, func(o *surroundOptions) { o.env = append([]string{"PYTHONPATH=" + theirs}, o.env...) })
			check.Equal(t, h.run(t, "python3", "program.py", program), c.want)
		})
	}
}

const nodeGet = `
const fs = require('fs'), https = require('https'), http2 = require('http2'), tls = require('tls'), net = require('net')
const ca = fs.readFileSync('own.pem')
const get = options => new Promise((done, fail) => https.get(options, r => { let text = ''; r.on('data', d => text += d); r.on('end', () => done(text)) }).on('error', fail))
const raw = socket => new Promise((done, fail) => { let text = ''; socket.on('error', fail).on('data', d => text += d).on('end', () => done(text.split('\r\n\r\n')[1])); socket.write('GET / HTTP/1.0\r\nHost: h\r\n\r\n') })
const show = promise => promise.then(console.log, e => console.log(e.code))
`

func TestNode(t *testing.T) {
	h := newHooked(t, func(o *surroundOptions) { o.env = append([]string{"NODE_OPTIONS=--no-deprecation"}, o.env...) })
	const metered, bare = "HTTP/1.1 api.metered.test for api.metered.test", "HTTP/1.0 h for api.metered.test"
	for _, c := range []struct{ name, text, want string }{
		{"https", `show(get('https://api.metered.test/'))`, metered},
		{"own agent", `show(get({ host: 'api.metered.test', agent: new https.Agent({ ca, keepAlive: false }) }))`, metered},
		{"roots as text", `show(get({ host: 'api.metered.test', ca: ca.toString() }))`, metered},
		{"roots as array", `show(get({ host: 'api.metered.test', ca: [ca, ...tls.rootCertificates] }))`, metered},
		{"no roots named", `show(get({ host: 'API.metered.test', ca: undefined }))`, "HTTP/1.1 API.metered.test for API.metered.test"},
		{"secure context", `show(get({ host: 'api.metered.test', secureContext: tls.createSecureContext({ ca }) }))`, metered},
		{"unverified", `show(get({ host: 'api.metered.test', ca, rejectUnauthorized: false }))`, metered},
		{"fetch", `show(fetch('https://one.shops.test/').then(r => r.text()))`, "HTTP/1.1 one.shops.test for one.shops.test"},
		{"h2", `const s = http2.connect('https://api.metered.test'); const r = s.request({ ':path': '/' }); let text = ''
r.on('data', d => text += d).on('end', () => { console.log(text); s.close() })`, "HTTP/2.0 api.metered.test:443 for api.metered.test"},
		{"tls by options", `show(raw(tls.connect({ host: 'api.metered.test', port: '443', servername: 'api.metered.test', ca })))`, bare},
		{"tls without servername", `show(raw(tls.connect({ host: 'api.metered.test.', port: 443 })))`, bare},
		{"tls by port", `show(raw(tls.connect(443, 'api.metered.test', { ca }, () => console.log('secure'))))`, "secure\n" + bare},
		{"tls by port, host among options", `show(raw(tls.connect(443, { host: 'api.metered.test', ca })))`, bare},
		{"IDN", `show(raw(tls.connect(443, 'Bücher.test')))`, "HTTP/1.0 h for xn--bcher-kva.test"},
		{"lookup and local address", `show(raw(tls.connect({ host: 'api.metered.test', port: 443, localAddress: '::1', family: 6, lookup: (h, o, cb) => cb(new Error('asked')) })))`, bare},
		{"connected socket", `const { QUOTACTL_METER_DIRECT: d } = process.env, [, ip, port] = /(.*):(.*)/.exec(d)
const socket = net.connect(port, ip, () => show(raw(tls.connect({ socket, host: 'localhost', port: 443, servername: 'api.metered.test', ca }))))`, bare},
		{"pipe", `tls.connect('/missing.sock').on('error', e => console.log(e.code))`, "ENOENT"},
		{"other port", `tls.connect(1, 'localhost').on('error', e => console.log(e.code))`, "ECONNREFUSED"},
		{"other servername", `const s = tls.connect({ host: 'localhost', port: 443, servername: 'other.test', lookup: (h, o, cb) => cb(new Error('asked')) }).on('error', e => console.log(e.message))`, "asked"},
		{"port of the origin", `const s = tls.connect(443, 'api.metered.test', () => { console.log(s.remotePort); s.end() })`, "443"},
		{"options are left alone", `const o = { host: 'api.metered.test', port: 443, ca: [ca] }; show(raw(tls.connect(o)).then(() => o.host + o.port + o.ca.length))`, "api.metered.test4431"},
		{"worker", `const { Worker } = require('worker_threads'); new Worker("require('https').get('https://api.metered.test/', r => r.pipe(process.stdout))", { eval: true })`, metered},
		{"child", `process.stdout.write(require('child_process').execFileSync(process.execPath, ['-e', "require('https').get('https://api.metered.test/', r => r.pipe(process.stdout))"]))`, metered},
		{"exports", `console.log(Object.keys(tls).some(k => /quota/.test(k)), tls.connect.length)`, "false 0"},
	} {
		t.Run(c.name, func(t *testing.T) { check.Equal(t, h.run(t, "node", "program.cjs", nodeGet+c.text), c.want) })
	}
	t.Run("module", func(t *testing.T) {
		const text = `import { connect } from 'node:tls'
connect(443, 'api.metered.test', function () { this.on('data', d => console.log(String(d).split('\r\n\r\n')[1])); this.write('GET / HTTP/1.0\r\nHost: h\r\n\r\n') })`
		check.Equal(t, h.run(t, "node", "program.mjs", text), bare)
	})
}

// TestNodeBeside is TestPythonBeside for Node.
func TestNodeBeside(t *testing.T) {
	const text = `const tls = require('tls')
tls.connect({ host: 'localhost', port: 443, lookup: (h, o, cb) => cb(new Error('asked')) }).on('error', e => console.log(e.message))`
	h := newHooked(t, nil)
	for _, set := range []string{"QUOTACTL_METER_DIRECT=", "QUOTACTL_METER_UID=4242", "QUOTACTL_METER_DIRECT=nonsense", "QUOTACTL_METER_CA=/missing", "QUOTACTL_METER_HOSTS="} {
		check.Equal(t, h.run(t, "node", "program.cjs", text, set), "asked", set)
	}
}

// TestHooksTwice: the hooks of a meter within a meter send to the inner one, once.
func TestHooksTwice(t *testing.T) {
	outer := newHooked(t, nil)
	inner := newHooked(t, func(o *surroundOptions) { o.env = append(outer.env, "HOME="+t.TempDir()) })
	const metered = "HTTP/1.1 api.metered.test for api.metered.test"
	check.Equal(t, inner.run(t, "python3", "program.py", pythonGet+`print(get("api.metered.test", own()))`), metered)
	check.Equal(t, inner.run(t, "node", "program.cjs", nodeGet+`show(get({ host: 'api.metered.test', ca }))`), metered)
}
