package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/table"
)

func TestMain(m *testing.M) {
	testscript.Main(tests{m}, programs())
}

// The scripts of testdata/script are what the command line is held to. Besides
// testscript's own they have these commands:
//
//	code N PROGRAM ARG…    runs a program that must exit with code N
//	until N PROGRAM ARG…   runs it until it exits with code N
//	tells CODE REGEXP PROGRAM ARG… runs it until its stderr matches; each run exits with CODE
//	json PATH VALUE        the last stdout is JSON and has VALUE, as JSON, at
//	                       PATH; steps are joined by dots, len is a length
//	json PATH ~ REGEXP     the same, for a value as JSON that matches
//	fits80                 no line of the last stdout is wider than 80 columns
//	get FILE PATH          asks the sandbox whose stdout goes to FILE; its
//	                       answer is the next stdout
//	redis start            starts a redis-server of the script's own, at $REDIS,
//	                       or the same one again
//	redis stop             has it stand still; redis continue: go on
//	redis kill             kills it with SIGKILL
//	redis flush            has it forget everything
//
// The stores of their configurations have a timeout of a minute, unless these name another.
func TestScripts(t *testing.T) {
	servers := &scriptServers{t: t, of: map[string]*redistest.Server{}}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("..", "..", "testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			root, err := filepath.Abs(filepath.Join("..", ".."))
			env.Setenv("REPOSITORY", root)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each program under the race detector takes a second to exit
			configs, _ := filepath.Glob(filepath.Join(env.WorkDir, "*.toml"))
			if filepath.Base(env.WorkDir) == "script-check" { // which counts their lines
				configs = nil
			}
			for _, config := range configs {
				text, read := os.ReadFile(config)
				err = errors.Join(err, read, os.WriteFile(config, []byte(patientConfig(string(text))), 0o600))
			}
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":   cmdCode,
			"until":  cmdUntil,
			"tells":  cmdTells,
			"json":   cmdJSON,
			"fits80": cmdFits80,
			"get":    cmdGet,
			"redis":  servers.cmdRedis,
		},
	})
}

var (
	storeTable   = regexp.MustCompile(`(?m)^\[?store\b`)
	storeTimeout = regexp.MustCompile(`(?m)^\[store\]\n([^\[\n].*\n)*timeout\b`)
)

// patientConfig gives a configuration's store a minute for each call, if it says nothing of that.
func patientConfig(config string) string {
	switch {
	case storeTimeout.MatchString(config):
		return config
	case storeTable.MatchString(config):
		return strings.Replace(config, "[store]\n", "[store]\ntimeout = \"1m\"\n", 1)
	}
	return config + "\n[store]\ntimeout = \"1m\"\n"
}

func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := exited(ts, args[1:]); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until N PROGRAM ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	repeat(ts, args[1:], func(code int) bool { return code == want })
}

func cmdTells(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: tells CODE REGEXP PROGRAM ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	what, err := regexp.Compile(args[1])
	ts.Check(err)
	repeat(ts, args[2:], func(code int) bool {
		if code != want {
			ts.Fatalf("exit code %d, want %d each time", code, want)
		}
		return what.MatchString(ts.ReadFile("stderr"))
	})
}

// repeat runs a program until that is enough.
func repeat(ts *testscript.TestScript, args []string, enough func(code int) bool) {
	deadline := time.After(patience)
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		code := exited(ts, args)
		if enough(code) {
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			ts.Fatalf("exit code %d to the end, and not what is waited for", code)
		}
	}
}

// exited runs a program and tells its exit code.
func exited(ts *testscript.TestScript, args []string) int {
	var failed *exec.ExitError
	switch err := ts.Exec(args[0], args[1:]...); {
	case errors.As(err, &failed):
		return failed.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	return 0
}

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 && (len(args) != 3 || args[1] != "~") {
		ts.Fatalf("usage: json PATH VALUE, or json PATH ~ REGEXP")
	}
	got, err := at([]byte(ts.ReadFile("stdout")), args[0])
	ts.Check(err)
	if len(args) == 2 && got != args[1] {
		ts.Fatalf("%s is %s, want %s", args[0], got, args[1])
	}
	if len(args) == 3 && !regexp.MustCompile(args[2]).MatchString(got) {
		ts.Fatalf("%s is %s, want a match of %s", args[0], got, args[2])
	}
}

// at is the value at a path of a JSON document, as compact JSON.
func at(document []byte, path string) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return "", fmt.Errorf("the output is no JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("the output goes on after its JSON value")
	}
	for step := range strings.SplitSeq(path, ".") {
		switch in := value.(type) {
		case map[string]any:
			next, ok := in[step]
			if !ok {
				return "", fmt.Errorf("%s: there is no %q", path, step)
			}
			value = next
		case []any:
			i, err := strconv.Atoi(step)
			if step == "len" {
				value = json.Number(strconv.Itoa(len(in)))
			} else if err != nil || i < 0 || i >= len(in) {
				return "", fmt.Errorf("%s: there is no item %q among %d", path, step, len(in))
			} else {
				value = in[i]
			}
		default:
			return "", fmt.Errorf("%s: nothing is below %v", path, in)
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSpace(out.String()), err
}

func cmdFits80(ts *testscript.TestScript, neg bool, _ []string) {
	stdout := ts.ReadFile("stdout")
	if neg || stdout == "" {
		ts.Fatalf("fits80 needs an output and takes no !")
	}
	for line := range strings.SplitSeq(stdout, "\n") {
		if width := utf8.RuneCountInString(line); width > table.Width {
			ts.Fatalf("a line is %d columns wide: %s", width, line)
		}
	}
}

// scriptServers are the servers of the scripts, by their working directories.
type scriptServers struct {
	t  *testing.T
	mu sync.Mutex // guards all below
	of map[string]*redistest.Server
}

func (s *scriptServers) cmdRedis(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: redis start|stop|continue|kill|flush")
	}
	s.mu.Lock()
	server := s.of[ts.Getenv("WORK")]
	s.mu.Unlock()
	if server == nil && args[0] != "start" {
		ts.Fatalf("redis start comes first")
	}
	switch args[0] {
	case "start":
		if server != nil {
			if !server.Start() {
				ts.Fatalf("the server does not start again")
			}
			return
		}
		server = redistest.Start(s.t, "--appendonly", "yes", "--appendfsync", "always")
		s.mu.Lock()
		s.of[ts.Getenv("WORK")] = server
		s.mu.Unlock()
		ts.Setenv("REDIS", "redis://"+server.Addr)
	case "stop":
		server.Signal(syscall.SIGSTOP)
	case "continue":
		server.Signal(syscall.SIGCONT)
	case "kill":
		server.Kill()
	case "flush":
		client := server.Client()
		ts.Check(client.FlushAll(s.t.Context()).Err())
		ts.Check(client.Close())
	default:
		ts.Fatalf("redis %s: there is no such command", args[0])
	}
}

// cmdGet waits for the sandbox to say where it listens, as the script has
// started it in the background.
func cmdGet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: get FILE PATH")
	}
	address := regexp.MustCompile(`listening on (http://\S+)\n`)
	deadline := time.After(patience)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			ts.Fatalf("%v", err)
		}
		if found := address.FindSubmatch(text); found != nil {
			client := http.Client{Timeout: patience}
			response, err := client.Get(string(found[1]) + args[1])
			ts.Check(err)
			body, err := io.ReadAll(response.Body)
			ts.Check(errors.Join(err, response.Body.Close()))
			_, err = fmt.Fprintf(ts.Stdout(), "%d %s\n", response.StatusCode, body)
			ts.Check(err)
			if used := response.Header.Get("X-RateLimit-Used"); used != "" {
				_, err = fmt.Fprintf(ts.Stdout(), "used %s\n", used)
				ts.Check(err)
			}
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			ts.Fatalf("no address in %s: %s", args[0], text)
		}
	}
}
