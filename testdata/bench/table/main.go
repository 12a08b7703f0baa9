// Table runs the benchmarks of the repository and prints one Markdown table of what they
// measure, beside what was asked for. Run it in testdata/bench:
//
//	go run ./table [-only REGEXP] [-into FILE]
//
// -only takes some of the sections, and -into writes the whole table between the markers of
// a document. The exit code is 1 if a benchmark failed or printed nothing; a figure that
// misses what was asked for is marked and fails nothing.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "measure only the sections whose titles match this `regexp`")
	into := flag.String("into", "", "write the table between the markers of this `file` too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, *only, *into); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, only, into string) error {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("read -only: %w", err)
	}
	if only != "" && into != "" {
		return errors.New("-into writes the whole table: leave -only out")
	}
	top, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	t := table{about: about(ctx, top)}
	var failed []error
	for _, s := range sections() {
		if !chosen.MatchString(s.title) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", s.title, s.command())
		lines, err := s.run(ctx, top)
		if err == nil && len(lines) == 0 {
			err = errors.New("no benchmark has that name")
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.title, err))
		}
		t.add(s, lines, err)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if !slices.ContainsFunc(sections(), func(s section) bool { return chosen.MatchString(s.title) }) {
		var titles []string
		for _, s := range sections() {
			titles = append(titles, s.title)
		}
		return fmt.Errorf("-only %q matches no section: there are\n\t%s", only, strings.Join(titles, "\n\t"))
	}
	text := t.String()
	fmt.Print(text)
	if into != "" {
		if err := replace(into, text); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// run runs the section's benchmarks and returns what they printed. It parses their output
// even if they fail.
func (s section) run(ctx context.Context, top string) ([]line, error) {
	command := exec.CommandContext(ctx, "go", s.args()...)
	command.Dir = filepath.Join(top, s.dir)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, os.Stderr
	ran := command.Run()
	lines, err := parse(bytes.NewReader(out.Bytes()))
	if ran != nil {
		fmt.Fprintln(os.Stderr, out.String())
		ran = fmt.Errorf("%s: %w", s.command(), ran)
	}
	return lines, errors.Join(ran, err)
}

// about says when, where and on what is measured.
func about(ctx context.Context, top string) string {
	first := func(name string, args ...string) string {
		command := exec.CommandContext(ctx, name, args...)
		command.Dir = top
		out, _ := command.Output()
		text, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return text
	}
	redis := regexp.MustCompile(`v=(\S+)`).FindStringSubmatch(first("redis-server", "--version"))
	if redis == nil {
		redis = []string{"", "of unknown version"}
	}
	return fmt.Sprintf("%s, %d cores (%s), %s/%s, %s, Redis %s, commit %s",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH, runtime.Version(), redis[1], first("git", "rev-parse", "--short", "HEAD"))
}

// processor is the model of the CPU, where it can be known.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	model := regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`).FindSubmatch(text)
	if model == nil {
		return "unknown model"
	}
	return string(model[1])
}

// The markers between which a document has the table.
const (
	begins = "<!-- The table: make bench DOCS=1 writes it. -->\n"
	ends   = "<!-- The end of the table. -->\n"
)

// replace puts the text between the markers of a file.
func replace(path, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(old), begins)
	_, after, ended := strings.Cut(rest, ends)
	if !found || !ended {
		return fmt.Errorf("%s has no lines %q and %q between which the table belongs", path, strings.TrimSpace(begins), strings.TrimSpace(ends))
	}
	return os.WriteFile(path, []byte(before+begins+"\n"+text+"\n"+ends+after), 0o644)
}
