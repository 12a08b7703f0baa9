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
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"quotactl": main})
}

// The scripts of testdata/script are what the command line is held to. Besides
// testscript's own they have these commands:
//
//	code N PROGRAM ARG…    runs a program that must exit with code N
//	json PATH VALUE        the last stdout is JSON and has VALUE, as JSON, at
//	                       PATH; steps are joined by dots, len is a length
//	json PATH ~ REGEXP     the same, for a value as JSON that matches
//	fits80                 no line of the last stdout is wider than 80 columns
//	get FILE PATH          asks the sandbox whose stdout goes to FILE; its
//	                       answer is the next stdout
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("..", "..", "testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			root, err := filepath.Abs(filepath.Join("..", ".."))
			env.Setenv("REPOSITORY", root)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each program under the race detector takes a second to exit
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":   cmdCode,
			"json":   cmdJSON,
			"fits80": cmdFits80,
			"get":    cmdGet,
		},
	})
}

func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got, err := 0, ts.Exec(args[1], args[2:]...)
	var exited *exec.ExitError
	switch {
	case errors.As(err, &exited):
		got = exited.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
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
		if width := utf8.RuneCountInString(line); width > tableWidth {
			ts.Fatalf("a line is %d columns wide: %s", width, line)
		}
	}
}

// cmdGet waits for the sandbox to say where it listens, as the script has
// started it in the background.
func cmdGet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: get FILE PATH")
	}
	address := regexp.MustCompile(`listening on (http://\S+)\n`)
	deadline := time.After(30 * time.Second)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			ts.Fatalf("%v", err)
		}
		if found := address.FindSubmatch(text); found != nil {
			client := http.Client{Timeout: 30 * time.Second}
			response, err := client.Get(string(found[1]) + args[1])
			ts.Check(err)
			body, err := io.ReadAll(response.Body)
			ts.Check(errors.Join(err, response.Body.Close()))
			_, err = fmt.Fprintf(ts.Stdout(), "%d %s\n", response.StatusCode, body)
			ts.Check(err)
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			ts.Fatalf("no address in %s: %s", args[0], text)
		}
	}
}
