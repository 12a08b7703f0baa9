package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
)

// tests are those of this package. Their Go programs are built into a folder that is removed
// with them.
type tests struct{ *testing.M }

func (m tests) Run() int {
	dir, err := os.MkdirTemp("", "quotactl-docs")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	docBuilds.dir = dir
	return m.M.Run()
}

// docBuilds has the Go programs of the documents by their text: several tests run the same.
var docBuilds = struct {
	sync.Mutex
	dir string
	of  map[string]string
}{of: map[string]string{}}

// buildGo compiles a program against this module, in the way that this test was, and returns
// where it is.
func buildGo(t *testing.T, source string) string {
	t.Helper()
	docBuilds.Lock()
	defer docBuilds.Unlock()
	if built, ok := docBuilds.of[source]; ok {
		return built
	}
	dir := must.Get(os.MkdirTemp(docBuilds.dir, ""))(t)
	file, built := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	must.Do(t, os.WriteFile(file, []byte(source), 0o600))
	args := []string{"build", "-o", built}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	build := exec.CommandContext(t.Context(), "go", append(args, file)...)
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the program does not compile: %v\n%s", err, out)
	}
	docBuilds.of[source] = built
	return built
}
