package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
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
	if n := len(w.log.String()); n > 2*maxLine {
		t.Errorf("the log has %d bytes", n)
	}
}

// shown are the lines that stand in the log for an output.
func shown(t *testing.T, output, secret string, others ...string) []string {
	t.Helper()
	var lines []string
	hide := hider(secret, others...)
	err := readLines(strings.NewReader(output), func(kept string, length int) { lines = append(lines, lineText(kept, length, hide)) })
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func TestLogLines(t *testing.T) {
	full := strings.Repeat("x", maxLine)
	for _, test := range []struct {
		name, output string
		want         []string
	}{
		{"nothing", "", nil},
		{"an empty line", "\n", []string{""}},
		{"no end", "a\n\nb", []string{"a", "", "b"}},
		{"another system's end", "a\r\nb\r\n", []string{"a", "b"}},
		{"progress", "1%\r2%\n", []string{"1% 2%"}},
		{"control characters", "a\x00b\x1b[2Jc\td\u0085\n", []string{"a b [2Jc\td "}},
		{"turned about", "a\u202eb\u2028c\n", []string{"a b c"}},
		{"no text", "a\xff\xfeb\n", []string{"a\ufffdb"}},
		{"as long as may be", full + "\ny", []string{full, "y"}},
		{"longer", full + "z\ny", []string{full + fmt.Sprintf("…(cut, %d bytes)", maxLine+1), "y"}},
		{"longer than is kept", strings.Repeat("x", keptLine+9) + "\ny", []string{full + fmt.Sprintf("…(cut, %d bytes)", keptLine+9), "y"}},
		{"cut within a character", full[1:] + "é\n", []string{full[1:] + fmt.Sprintf("…(cut, %d bytes)", maxLine+1)}},
	} {
		t.Run(test.name, func(t *testing.T) { equal(t, "lines", shown(t, test.output, ""), test.want) })
	}
}

// No cut leaves a part of the secret, wherever it stands.
func TestLogLinesHideTheSecret(t *testing.T) {
	const secret = "0123456789abcdef"
	for _, at := range []int{0, maxLine - 8, maxLine, keptLine - 8, keptLine} {
		for _, more := range []int{0, 2 * keptLine} {
			output := strings.Repeat("x", at) + secret + strings.Repeat("x", more)
			for _, line := range shown(t, output, secret) {
				if text, _, _ := strings.Cut(line, "…"); strings.ContainsAny(text, secret[:8]) {
					t.Errorf("at %d of %d bytes: the end of the line is %q", at, len(output), line[max(0, len(line)-60):])
				}
			}
		}
	}
	long := strings.Repeat(secret, 12) // many of them are short once they are hidden
	output := strings.Repeat(long, 3*keptLine/len(long))
	equal(t, "lines", shown(t, output, long), []string{fmt.Sprintf("…(cut, %d bytes)", len(output))})
}

// A secret of several lines is hidden line by line, and what cannot be sought is
// not shown at all.
func TestLogLinesHideSecretsOfSeveralLines(t *testing.T) {
	key := "-----BEGIN KEY-----\nMIIEvQIBADAN\n}\n-----END KEY-----"
	equal(t, "lines", shown(t, "a MIIEvQIBADAN b\n{}\n", key), []string{"a [secret] b", "{}"})
	equal(t, "lines", shown(t, "a\nb", strings.Repeat("k", maxSought+1)), []string{notShown, notShown})
}

// What a command prints of others' secrets is hidden too: it may come by all of
// them. One of them that is long leaves the lines.
func TestLogLinesHideOthersSecrets(t *testing.T) {
	long := ""
	for len(long) <= 2*maxSought {
		long += fmt.Sprint(len(long), ".")
	}
	equal(t, "lines", shown(t, "own, other and another, "+long+"\nk\n", "own", "other", "another", "", "x\nlines\n", long),
		[]string{"[secret], [secret] and [secret], [secret][secret][secret]", "k"})
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
