package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if err := os.WriteFile(w.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// inProcess runs the program in this process, scans what it says, and makes
// sure that it says something.
func (w *wrongly) inProcess(args ...string) {
	w.t.Helper()
	var stdout, stderr bytes.Buffer
	run(w.t.Context(), append(args, "-c", w.config), &stdout, &stderr, func(string) (string, bool) { return "", false })
	if stdout.Len()+stderr.Len() == 0 {
		w.t.Errorf("quotactl %q says nothing", args[:1])
	}
	w.absent(fmt.Sprintf("stdout of quotactl %s", args[0]), stdout.Bytes())
	w.absent(fmt.Sprintf("stderr of quotactl %s", args[0]), stderr.Bytes())
}
