package main

import (
	"archive/zip"
	"bytes"
	"io"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
)

// packages serves indexes of packages, and a repository of git.
func (f *apis) packages(t *testing.T, repositories string) {
	const host = "GET packages.example.com"
	f.priced(host+"/simple/{name}/", "packages", "index", 1, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<a href="https://packages.example.com/files/demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a>`)
	})
	f.priced(host+"/files/{name}", "packages", "find", 4, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheel()) })
	f.priced(host+"/npm/{name}", "packages", "index", 1, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, 200, map[string]any{"name": "demo", "dist-tags": map[string]any{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": map[string]any{"name": "demo", "version": "1.0.0"}}})
	})
	f.priced(host+"/index/config.json", "packages", "index", 1, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, 200, map[string]any{"dl": "https://packages.example.com/files", "api": "https://packages.example.com"})
	})
	f.priced(host+"/api/v1/crates", "packages", "find", 4, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, 200, map[string]any{"crates": []any{map[string]any{"name": "demo", "max_version": "1.0.0", "description": "a package"}}, "meta": map[string]any{"total": 1}})
	})
	f.priced(host+"/go/{rest...}", "packages", "index", 1, func(w http.ResponseWriter, r *http.Request) {
		switch version := strings.TrimSuffix(path.Base(r.URL.Path), path.Ext(r.URL.Path)); path.Ext(r.URL.Path) {
		case ".info":
			answerJSON(w, 200, map[string]any{"Version": version, "Time": "2026-11-30T00:00:00Z"})
		case ".mod":
			_, _ = io.WriteString(w, "module example.com/demo\n")
		default:
			_, _ = io.WriteString(w, "v1.0.0\nv1.1.0\n")
		}
	})

	backend := &cgi.Handler{
		Path: filepath.Join(output(t, "git", "--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + repositories, "GIT_HTTP_EXPORT_ALL=1"},
	}
	served := func(w http.ResponseWriter, r *http.Request) { // which the library does not pass on
		one := *backend
		one.Env = append([]string{"HTTP_GIT_PROTOCOL=" + r.Header.Get("Git-Protocol"), "GIT_PROTOCOL=" + r.Header.Get("Git-Protocol")}, backend.Env...)
		one.ServeHTTP(w, r)
	}
	f.priced("GET git.example.com/repo.git/info/refs", "git", "refs", 1, served)
	f.priced("POST git.example.com/repo.git/git-upload-pack", "git", "pack", 9, served)
}

// wheel is a package for pip.
func wheel() []byte {
	var file bytes.Buffer
	archive := zip.NewWriter(&file)
	for name, text := range map[string]string{
		"demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
		"demo-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"demo-1.0.dist-info/RECORD":   "",
	} {
		if w, err := archive.Create(name); err == nil {
			_, _ = io.WriteString(w, text)
		}
	}
	_ = archive.Close()
	return file.Bytes()
}

// repository makes a repository of one commit, repo.git, and returns the folder that it is in.
func repository(t *testing.T) string {
	dir := t.TempDir()
	output(t, "git", "init", "-q", filepath.Join(dir, "work"))
	output(t, "git", "-C", filepath.Join(dir, "work"), "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "one")
	output(t, "git", "clone", "-q", "--bare", filepath.Join(dir, "work"), filepath.Join(dir, "repo.git"))
	return dir
}

// output is what a program prints that must succeed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	out := must.Get(cmd.CombinedOutput())(t)
	return strings.TrimSpace(string(out))
}
