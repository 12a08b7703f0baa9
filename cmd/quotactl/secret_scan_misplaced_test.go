package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
)

// wrongly is a configuration that holds a secret where none belongs.
type wrongly struct {
	*secrets
	t      *testing.T
	config string
}

func newMisplaced(t *testing.T, s *secrets, text string) *wrongly {
	t.Helper()
	w := &wrongly{secrets: s, t: t, config: filepath.Join(t.TempDir(), "costs.toml")}
	text = strings.ReplaceAll(text, "sqlite:q.db", "sqlite:"+filepath.Join(filepath.Dir(w.config), "q.db"))
	must.Do(t, os.WriteFile(w.config, []byte(text), 0o600))
	return w
}

// inProcess runs the program in this process, scans what it says, and makes
// sure that it says something.
func (w *wrongly) inProcess(args ...string) {
	w.t.Helper()
	if _, said := w.answer(args...); said == "" {
		w.t.Errorf("quotactl %q says nothing", args[:1])
	}
}

// answer is the exit code and what is said.
func (w *wrongly) answer(args ...string) (code int, said string) {
	w.t.Helper()
	var stdout, stderr bytes.Buffer
	config := []string{"-c", w.config}
	code = run(w.t.Context(), append(config, args...), &stdout, &stderr, func(string) (string, bool) { return "", false })
	w.absent(fmt.Sprintf("stdout of quotactl %s", args[0]), stdout.Bytes())
	w.absent(fmt.Sprintf("stderr of quotactl %s", args[0]), stderr.Bytes())
	return code, stdout.String() + stderr.String()
}
