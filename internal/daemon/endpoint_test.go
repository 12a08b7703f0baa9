package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/certtest"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Wrong flags are refused before the daemon listens.
func TestListenFlags(t *testing.T) {
	const guarded, reading = "a-token-that-nobody-guesses", "a-token-that-may-only-look"
	dir := t.TempDir()
	cert, key := certtest.SelfSigned(t, dir)
	token, read, short := filepath.Join(dir, "token"), filepath.Join(dir, "read"), filepath.Join(dir, "short")
	for path, text := range map[string]string{token: guarded + "\n", read: reading + "\n", short: "too-short\n"} {
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	pipe := filepath.Join(dir, "pipe") // nobody writes to it
	must.Do(t, syscall.Mkfifo(pipe, 0o600))
	env := func(name string) (string, bool) {
		value, ok := map[string]string{"TOKEN": guarded, "READ": reading}[name]
		return value, ok
	}
	secure := Listen{Cert: cert, Key: key, TokenFile: token}
	with := func(f Listen, at string) Listen { f.At = at; return f }
	for _, c := range []struct {
		flags Listen
		want  string // of the error; else network and address
	}{
		{Listen{}, ""},
		{Listen{At: "9090"}, "tcp 127.0.0.1:9090 true"},
		{Listen{At: "[::1]:1"}, "tcp [::1]:1 true"},
		{Listen{At: "localhost:1", TokenEnv: "TOKEN"}, "tcp localhost:1 true"},
		{Listen{At: "unix:/run/q.sock", TokenEnv: "TOKEN"}, "unix /run/q.sock false"},
		{with(secure, "0.0.0.0:1"), "tcp 0.0.0.0:1 false"},
		{with(secure, "127.0.0.1:1"), "tcp 127.0.0.1:1 true"},
		{Listen{At: "0.0.0.0:1"}, "other machines can reach this address and could spend units"},
		{Listen{At: "[::]:1", TokenEnv: "TOKEN"}, "other machines can reach this address and could spend units"},
		{Listen{At: "example.com:1", Cert: cert, Key: key}, "other machines can reach this address and could spend units"},
		{Listen{At: "unix:"}, "write a path"},
		{Listen{At: "99999"}, "write a port from 0 to 65535"},
		{Listen{At: "-1"}, `"-1": write a port from 0 to 65535`},
		{Listen{At: "1", Cert: cert}, "give both"},
		{Listen{At: "1", Cert: cert, Key: cert}, "--listen-cert, --listen-key: tls:"},
		{Listen{At: "unix:/s", Cert: cert, Key: key}, "takes no certificate"},
		{Listen{At: "1", TokenEnv: "OTHER"}, "no variable of that name"},
		{Listen{At: "1", TokenFile: filepath.Join(dir, "none")}, "no such file"},
		{Listen{At: "1", TokenFile: short}, "16 to 512"},
		{Listen{At: "1", TokenFile: pipe}, "--listen-token-file: " + pipe + " is a pipe, not a regular file"},
		{Listen{At: "1", Cert: pipe, Key: key}, "--listen-cert: " + pipe + " is a pipe"},
		{Listen{At: "1", Cert: cert, Key: "/dev/zero"}, "--listen-key: /dev/zero is a device"},
		{Listen{At: "1", TokenFile: token, TokenEnv: "TOKEN"}, "both given"},
		{Listen{TokenEnv: "TOKEN"}, "give --listen too"},
		{Listen{At: "1", TokenEnv: "TOKEN", ReadTokenEnv: "READ"}, "tcp 127.0.0.1:1 true"},
		{Listen{At: "1", TokenFile: token, ReadTokenFile: read, AllowActions: true}, "tcp 127.0.0.1:1 true"},
		{Listen{At: "1", TokenEnv: "TOKEN", AllowActions: true}, "tcp 127.0.0.1:1 true"},
		{Listen{ReadTokenEnv: "READ"}, "give --listen too"},
		{Listen{AllowActions: true}, "--allow-actions are only for listening: give --listen too"},
		{Listen{At: "1", AllowActions: true}, "--allow-actions needs a token, to sign in with: give --listen-token-env or --listen-token-file"},
		{Listen{At: "1", ReadTokenEnv: "READ"}, "need a token too"},
		{Listen{At: "1", ReadTokenEnv: "READ", AllowActions: true}, "need a token too"},
		{Listen{At: "1", TokenEnv: "TOKEN", ReadTokenFile: token}, "the token and the read token of --listen are the same"},
		{Listen{At: "1", TokenEnv: "TOKEN", ReadTokenEnv: "READ", ReadTokenFile: read}, "--listen-read-token-env and --listen-read-token-file are both given"},
		{Listen{At: "1", TokenEnv: "TOKEN", ReadTokenEnv: "OTHER"}, "--listen-read-token-env: the environment has no variable of that name"},
		{Listen{At: "1", TokenEnv: "TOKEN", ReadTokenFile: short}, "the token of --listen-read-token-env or --listen-read-token-file: use 16 to 512"},
		{Listen{At: "1", TokenEnv: "TOKEN", ReadTokenFile: pipe}, "--listen-read-token-file: " + pipe + " is a pipe"},
		{Listen{At: "0.0.0.0:1", ReadTokenEnv: "READ", Cert: cert, Key: key}, "need a token too"},
	} {
		e, err := c.flags.Endpoint(env)
		got := ""
		if e != nil {
			got = fmt.Sprint(e.network, " ", e.address, " ", e.loopback)
			check.Equal(t, c.flags.TokenEnv+c.flags.TokenFile != "", e.token == guarded)
			check.Equal(t, c.flags.ReadTokenEnv+c.flags.ReadTokenFile != "", e.readToken == reading)
			check.Equal(t, e.secure != nil, c.flags.Cert != "")
			check.Equal(t, e.act, c.flags.AllowActions)
		}
		var wrong *EndpointError
		if err != nil && (!errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), guarded) || strings.Contains(err.Error(), reading) || c.want == "") || err == nil && got != c.want {
			t.Errorf("%+v: %s, %v; want %s", c.flags, got, err, c.want)
		}
	}
}
