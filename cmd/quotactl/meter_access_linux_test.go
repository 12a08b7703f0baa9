package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/upstreamtest"
)

// heldMeter is a running meter whose command has run a script and waits.
type heldMeter struct {
	*program
	in  *upstreamtest.Internet
	env map[string]string // the command's variables

	release func() // lets the command end
}

// holdMeter starts a meter, and returns once its command has run a script that prints nothing.
func holdMeter(t *testing.T, script string, change func(heldMeter)) heldMeter {
	t.Helper()
	p, in := newMeter(t, 10, "--log-level", "debug", "--", "sh", "-c", script+"\nenv; echo .; cat >/dev/null")
	h := heldMeter{program: p, in: in, env: map[string]string{}}
	change(h)
	p.Stdout = nil
	stdin := must.Get(p.StdinPipe())(t)
	h.release = func() { must.Do(t, stdin.Close()) }
	lines := bufio.NewScanner(must.Get(p.StdoutPipe())(t))
	p.start()
	for lines.Scan() && lines.Text() != "." {
		name, value, _ := strings.Cut(lines.Text(), "=")
		h.env[name] = value
	}
	if lines.Text() != "." {
		t.Fatalf("the command has ended early:\n%s", stderrOf(p))
	}
	return h
}

// Another user of the machine gets nothing from a run: the proxy asks for its password, and the
// listener without a password closes the connection before a byte of an answer. The other user is
// nobody. Only root, or the helper newuidmap, can make a process theirs: where there is neither,
// the user of the test shows what the proxy does, and TestOwnerIn alone what the listener does.
func TestMeterKeepsOthersOut(t *testing.T) {
	t.Parallel()
	h := holdMeter(t, "", func(heldMeter) {})
	nobody := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
	if os.Geteuid() != 0 {
		nobody = append([]string{"unshare", "--map-root-user", "--map-auto"}, nobody...)
	}
	refused := ""
	const greeting = "\x16\x03\x03" // how a server's part of the handshake begins
	if out, err := exec.CommandContext(t.Context(), nobody[0], append(nobody[1:], "true")...).CombinedOutput(); err != nil {
		t.Logf("no process of another user can be made here: %v: %s", err, out)
		check.Equal(t, os.Geteuid() == 0, false, "this is root")
		nobody, refused = nil, greeting
	}
	proxy, direct := must.Get(url.Parse(h.env["HTTPS_PROXY"]))(t).Host, h.env["QUOTACTL_METER_DIRECT"]
	for _, c := range []struct{ address, request, own, others string }{
		{proxy, "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n", "HTTP/1.1 407", "HTTP/1.1 407"},
		{proxy, "GET http://api.example.com/v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "HTTP/1.1 407", "HTTP/1.1 407"},
		{direct, helloTo(t, "api.example.com"), greeting, refused},
	} {
		check.Equal(t, strings.HasPrefix(beginning(t, nil, c.address, c.request), c.own), true, fmt.Sprintf("the user's own %.8q", c.request))
		got := beginning(t, nobody, c.address, c.request)
		check.Equal(t, strings.HasPrefix(got, c.others) && (c.others != "" || got == ""), true, fmt.Sprintf("nobody's %.8q: %q", c.request, got))
	}
	h.release()
	h.exits(0)
	check.Contains(t, stderrOf(h.program), "no call to an upstream of the configuration was seen")
	check.Equal(t, len(h.in.Dialled()), 0, "connections to upstreams")
}

// beginning is how the answer to a request begins that a program sends; prefix makes it another
// user's.
func beginning(t *testing.T, prefix []string, address, request string) string {
	t.Helper()
	host, port, _ := strings.Cut(address, ":")
	argv := append(slices.Clone(prefix), "bash", "-c", `exec 3<>"/dev/tcp/$0/$1" && cat >&3 && head -c 12 <&3`, host, port)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(request)
	out, _ := cmd.Output() // it fails where the connection is closed
	return string(out)
}

// helloTo is what a TLS client sends first.
func helloTo(t *testing.T, name string) string {
	t.Helper()
	client, server := net.Pipe()
	defer func() { must.Do(t, server.Close()) }()
	go func() { _ = tls.Client(client, &tls.Config{ServerName: name}).Handshake() }() // nobody answers
	hello := make([]byte, 1<<16)
	return string(hello[:must.Get(server.Read(hello))(t)])
}

// The API's key, the proxy's password and the keys of certificates are in no file, argument or log
// of a run, whatever becomes of its calls; and in no variable but those of the proxy.
func TestMeterLeavesNoSecret(t *testing.T) {
	t.Parallel()
	s := newSecrets(t)
	hidden, home := t.TempDir(), t.TempDir()
	key := url.QueryEscape(s.add("key"))
	var calls strings.Builder
	for _, at := range []string{ // good ones, no operation, a tunnel, a wrong certificate, no such host
		"https://api.example.com/v1/a", "https://api.example.com/v1/" + key, "https://api.example.com/v2/" + key,
		"https://other.example.com/" + key, "https://api.example.invalid/" + key, "http://api.example.invalid/" + key, "http://other.invalid/" + key,
	} {
		fmt.Fprintf(&calls, "url = \"%s?key=%s\"\noutput = /dev/null\n", at, key)
	}
	fmt.Fprintf(&calls, "header = \"X-Api-Key: %s\"\ndata = \"%[1]s\"\nrequest = GET\n", s.byName["key"])
	must.Do(t, os.WriteFile(filepath.Join(hidden, "curlrc"), []byte(calls.String()), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(hidden, "key"), []byte(s.byName["key"]), 0o600))
	h := holdMeter(t, "curl -sK "+hidden+`/curlrc; curl -s --cacert "$OWN_ROOTS" https://api.example.com/v1/a`, func(h heldMeter) {
		h.Env = append(h.Env, "HOME="+home, "OWN_ROOTS="+h.in.Cert)
		config := strings.NewReplacer(`["api`, `["api.example.invalid", "api`, `secret_env = "TEST_KEY"`, fmt.Sprintf("secret_file = %q", filepath.Join(hidden, "key"))).
			Replace(fmt.Sprintf(meterConfig, 10))
		must.Do(t, os.WriteFile(filepath.Join(h.Dir, "costs.toml"), []byte(config), 0o600))
	})
	check.Equal(t, len(h.in.Requests()), 3, "calls that arrived")
	proxy := must.Get(url.Parse(h.env["HTTPS_PROXY"]))(t)
	token, _ := proxy.User.Password()
	s.addText("the proxy's password", token)
	s.addText("a key of a certificate", "PRIVATE KEY-----")
	for name, value := range h.env {
		isProxy := slices.Contains([]string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"}, name)
		check.Equal(t, strings.Contains(value, token), isProxy, name)
	}
	for _, of := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", h.Process.Pid, of))
		check.Equal(t, err == nil || of == "environ" && os.IsPermission(err), true, of, err)
		s.absent(of, text)
	}
	scan := func() (files int) {
		for _, folder := range []string{h.Dir, home, tempOf(h.program)} {
			files += s.absentBelow(folder)
		}
		return files
	}
	check.Equal(t, scan() >= 8, true, "files were scanned") // costs.toml, stderr, the ledger, the folder of certificates
	h.release()
	h.exits(exitUsage) // of /v2
	check.Contains(t, stderrOf(h.program), "level=DEBUG")
	check.Equal(t, scan() >= 3, true, "files were scanned")
}

// The memory of a meter is closed to other processes of its user, and a crash leaves no core. The
// command's memory, and what its crash leaves, are as without a meter. Root counts as a user here
// once it has no capabilities.
func TestMeterMemoryIsClosed(t *testing.T) {
	t.Parallel()
	const (
		setup = `ulimit -S -c "$(ulimit -H -c)"; `
		crash = `sh -c 'kill -ABRT $$'`
	)
	bare := exec.CommandContext(t.Context(), "sh", "-c", setup+crash+"; true")
	bare.Dir = t.TempDir()
	without := string(must.Get(bare.CombinedOutput())(t))
	h := holdMeter(t, `for file in environ mem; do
		(true </proc/$$/$file) 2>/dev/null && echo own_$file=read
		(true </proc/$PPID/$file) 2>/dev/null && echo meter_$file=read
	done; crash=$(exec 2>&1; `+crash+`; true); export crash`, func(h heldMeter) {
		h.Env = append(h.Env, "GOTRACEBACK=crash")
		inner := []string{"sh", "-c", setup + `exec "$0" "$@"`, h.Path}
		if os.Geteuid() == 0 {
			inner = append([]string{"setpriv", "--bounding-set=-all", "--inh-caps=-all"}, inner...)
		}
		h.Path, h.Args = must.Get(exec.LookPath(inner[0]))(t), append(inner, h.Args[1:]...)
	})
	for _, file := range []string{"environ", "mem"} {
		check.Equal(t, h.env["own_"+file], "read", "the command's own", file)
		check.Equal(t, h.env["meter_"+file], "", "meter's", file)
	}
	check.Equal(t, strings.Contains(h.env["crash"], "core dumped"), strings.Contains(without, "core dumped"), "the command's crash leaves a core")
	if effort.Of(true, false, false) { // the runtime of Go takes ten seconds for a crash
		h.release()
		h.exits(0)
		return
	}
	h.signal(syscall.SIGABRT)
	h.release()
	_ = h.Wait() // its status says more
	status := h.ProcessState.Sys().(syscall.WaitStatus)
	check.Equal(t, status.Signal(), syscall.SIGABRT, "what ended meter")
	check.Equal(t, status.CoreDump(), false, "meter's crash leaves a core")
}
