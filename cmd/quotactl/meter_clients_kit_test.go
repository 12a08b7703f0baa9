package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
)

// clientsFolder has the clients' programs, in several languages.
var clientsFolder = filepath.Join("..", "..", "testdata", "clients")

// A clientKit is what the runs of all clients share.
type clientKit struct {
	programs     map[string]string // paths of the programs that a client's first word names
	repositories string            // the folder of what git.example.com serves
	without      sync.Map          // the outcome without hooks, by the name of a client that was run
}

// newClientKit finds and builds what the clients need. A program that is missing ends the test
// with what to install.
func newClientKit(t *testing.T, chosen []client) *clientKit {
	k := &clientKit{programs: map[string]string{}, repositories: repository(t)}
	for _, c := range chosen {
		name := c.program[0]
		if k.programs[name] != "" {
			continue
		}
		switch name {
		case "go":
			k.programs[name] = buildClient(t)
		case "python":
			k.programs[name] = python(t)
		case "node":
			k.programs[name] = pinnedNode(t)
		case "node20":
			k.programs[name] = installed(t, "node")
		default:
			k.programs[name] = installed(t, name)
		}
	}
	return k
}

// argv is a client's command line.
func (k *clientKit) argv(c client) []string {
	return slices.Concat([]string{k.programs[c.program[0]]}, c.program[1:], c.scenarios)
}

func installed(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("the test needs %s: .ci/needs clients installs it or says how", program)
	}
	return path
}

// python is one that has the clients that Debian packages: another may come first in the path.
func python(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"/usr/bin/python3", installed(t, "python3")} {
		if exec.CommandContext(t.Context(), path, "-c", "import requests, httpx, h2, zstandard").Run() == nil {
			return path
		}
	}
	t.Fatal("no python3 has requests, httpx, h2 and zstandard: .ci/needs clients installs them or says how")
	return ""
}

// pinnedNode installs what testdata/clients/node locks, unless it is there, and returns its Node.
func pinnedNode(t *testing.T) string {
	t.Helper()
	dir := must.Get(filepath.Abs(filepath.Join(clientsFolder, "node")))(t)
	node := filepath.Join(dir, "node_modules", ".bin", "node")
	lock := must.Get(os.ReadFile(filepath.Join(dir, "package-lock.json")))(t)
	mark := filepath.Join(dir, "node_modules", "installed.json") // the lock that it was installed by
	if was, err := os.ReadFile(mark); err == nil && string(was) == string(lock) {
		return node
	}
	install := exec.CommandContext(t.Context(), installed(t, "npm"), "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("the test needs the packages of %s: npm ci: %v\n%s", dir, err, out)
	}
	must.Do(t, os.WriteFile(mark, lock, 0o600))
	return node
}

// buildClient compiles the client in Go.
func buildClient(t *testing.T) string {
	t.Helper()
	built := filepath.Join(t.TempDir(), "metered")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", built, "./metered")
	build.Dir, build.Env = clientsFolder, append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the client in Go does not compile: %v\n%s", err, out)
	}
	return built
}

// trusting are the variables by which clients trust a file of roots, without a meter.
func trusting(t *testing.T, file string) []string {
	t.Helper()
	ini := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(ini, "roots.ini"), []byte("curl.cainfo="+file+"\nopenssl.cafile="+file+"\n"), 0o600))
	wgetrc := filepath.Join(t.TempDir(), "wgetrc")
	must.Do(t, os.WriteFile(wgetrc, []byte("ca_certificate="+file+"\n"), 0o600))
	variables := []string{"NODE_USE_ENV_PROXY=1", "PERL_LWP_ENV_PROXY=1", "PHP_INI_SCAN_DIR=:" + ini, "WGETRC=" + wgetrc}
	for _, name := range []string{
		"NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "HTTPLIB2_CA_CERTS",
		"PIP_CERT", "CARGO_HTTP_CAINFO", "NPM_CONFIG_CAFILE", "PERL_LWP_SSL_CA_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	} {
		variables = append(variables, name+"="+file)
	}
	return variables
}
