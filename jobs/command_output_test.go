package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/proc"
)

// Lines go into the log, each with who said it; the last without an end too.
func TestCommandOutput(t *testing.T) {
	w := commandWorld(t, `regions = ["US"]`, fmt.Sprintf(`echo one; printf 'two\033[31m\n' >&2; echo '%s'; printf last`, secretKey))
	if run := w.onlyRun(); run.Outcome != Succeeded {
		t.Fatalf("%+v", run)
	}
	w.logged("level=INFO", "line=one", "stream=stdout", "job=script", "region=US", "run=script/")
	w.logged("level=INFO", "line=\"two [31m\"", "stream=stderr")
	w.logged("line=[secret]")
	w.logged("line=last")
	if strings.Contains(w.log.String(), secretKey) {
		t.Error("the secret is in the log")
	}
}

// A megabyte without a line's end is one line of the log, of bounded length.
func TestCommandOutputWithoutLines(t *testing.T) {
	w := programWorld(t, "", "print", "1048576", "y")
	if run := w.onlyRun(); run.Outcome != Succeeded {
		t.Fatalf("%+v", run)
	}
	w.logged("line=\"yyy", "yyy…(cut, 1048576 bytes)")
	if n := len(w.log.String()); n > 2*proc.MaxLine {
		t.Errorf("the log has %d bytes", n)
	}
}

// All secrets of a configuration are known that can be read, and the store's.
func TestKnownSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("filed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{Store: config.Store{PasswordFile: path}, Upstreams: []config.Upstream{
		{Credentials: []config.Credential{{Label: "a", SecretEnv: "A"}, {Label: config.AnyCredential, SecretEnv: "B"}}},
		{Credentials: []config.Credential{{Label: "b", SecretEnv: "NONE"}, {Label: "c"}}},
	}}
	env := func(name string) (string, bool) {
		if name == "NONE" {
			return "", false
		}
		return " of " + name, true
	}
	equal(t, "secrets", KnownSecrets(cfg, env), []string{"filed", "of A", "of B"})
	cfg.Store = config.Store{PasswordEnv: "P"}
	equal(t, "secrets", KnownSecrets(cfg, env), []string{"of P", "of A", "of B"})
}

// The secret that is hidden is the credential's, as it is kept.
func TestKnownSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(" filed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) { return " set\n", name == "KEY" }
	for want, credential := range map[string]config.Credential{
		"set": {SecretEnv: "KEY"}, "filed": {SecretFile: path}, "": {SecretFile: path + ".not"},
	} {
		if got := knownSecret(credential, env); got != want {
			t.Errorf("%+v: %q, want %q", credential, got, want)
		}
	}
}
