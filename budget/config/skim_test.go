package config

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// readAlike fails unless a text read for a job says the same of every budget, and of charges
// with that job's label, as the text read whole. A text that is not TOML is refused too, unless
// its fault is in a table that is not read.
func readAlike(t *testing.T, text, job string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	whole, err := Parse(file)
	if err != nil {
		return
	}
	part, err := ParseFor(file, job)
	if err != nil {
		t.Fatalf("job %q of\n%s\nis read whole, but in part: %v", job, text, err)
	}
	if !reflect.DeepEqual(part.Budgets(), whole.Budgets()) || part.Store != whole.Store || part.StateDir != whole.StateDir {
		t.Fatalf("job %q of\n%s\nhas the budgets %v, whole %v", job, text, part.Budgets(), whole.Budgets())
	}
	for _, name := range whole.Budgets() {
		got, want := must.Get(part.Spec(name))(t), must.Get(whole.Spec(name))(t)
		if !reflect.DeepEqual(got.Jobs[job], want.Jobs[job]) {
			t.Fatalf("job %q of\n%s\nsays %+v to %s, whole %+v", job, text, got.Jobs[job], name, want.Jobs[job])
		}
		got.Jobs, want.Jobs = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("job %q of\n%s\nhas for %s\n%+v, whole\n%+v", job, text, name, got, want)
		}
	}
	if got, want := sortedNames(part), sortedNames(whole); !slices.Equal(got, want) {
		t.Fatalf("job %q of\n%s\nnames the jobs %v, whole %v", job, text, got, want)
	}
	// What is wrong elsewhere has the same lines.
	for _, fault := range part.doc.errors {
		if !slices.Contains(whole.doc.errors, fault) && len(whole.doc.errors) < maxFaults {
			t.Fatalf("job %q of\n%s\nhas the error %v, whole %v", job, text, fault, whole.doc.errors)
		}
	}
}

func sortedNames(c *Config) []string { return slices.Sorted(slices.Values(c.jobNames())) }

// All configurations of the tests and of this repository say the same when they are read for
// one job.
func TestReadForAJob(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"../../costs.toml", "../../testdata/config/*/*.toml", "../../docs/samples/*.toml", "../../internal/presets/*/*.toml", "../../internal/simulate/testdata/*.toml"} {
		files = append(files, must.Get(filepath.Glob(pattern))(t)...)
	}
	read := 0
	for _, file := range files {
		text := string(must.Get(os.ReadFile(file))(t))
		_, jobs := skim(text, "")
		for _, job := range append(jobs, "", "none") {
			readAlike(t, text, job)
		}
		read += len(jobs)
	}
	if read < 50 {
		t.Errorf("%d jobs in %d files: too few to show much", read, len(files))
	}
}

const skimmed = `state_dir = "s" # jobs
[upstream.a.costs]
get = 1
[upstream.a.limit.day]
limit = 10
window = "24h"
[upstream.a.credential.k]
`

// What a glance may mistake is read whole, or right.
func TestSkim(t *testing.T) {
	t.Parallel()
	const one, other = "[job.one]\nbudget = \"a/k\"\nfloor = 3\n", "[job.other]\nbudget = \"a/k\"\nfloor = 4\n[job.other.fetch]\nurl = \"x\"\n"
	for name, c := range map[string]struct {
		text  string
		whole bool
	}{
		"two jobs":               {skimmed + one + other, false},
		"a job before the rest":  {other + strings.TrimPrefix(skimmed, "state_dir = \"s\" # jobs\n"), false},
		"a job in between":       {skimmed + other + "[upstream.b.costs]\nget = 2\n[upstream.b.limit.day]\nlimit = 7\nwindow = \"1h\"\n[upstream.b.credential.k]\n" + one, false},
		"arrays and comments":    {skimmed + one + other + "regions = [ # [job.one]\n \"a\", # ]\n \"b\" ]\nnote = '[job.x]'\n", false},
		"CRLF":                   {strings.ReplaceAll(skimmed+one+other, "\n", "\r\n"), false},
		"an array of arrays":     {skimmed + one + other + "more = [\n[1],\n[2]]\n", true},
		"arrays in lines":        {skimmed + one + other + "more = [\n[1],\n[2],\n]\n", true},
		"a head in a string":     {skimmed + one + other + "note = \"\"\"\n[job.three]\n\"\"\"\n", true},
		"a head in another's":    {skimmed + "[upstream.b.costs]\n\"\"\"\n[job.three]\"\"\" = 1\n" + one + other, true},
		"a name in quotes":       {skimmed + one + other + "[job.\"three\"]\nbudget = \"a/k\"\n", true},
		"no name":                {skimmed + one + "[job.-]\nfloor = 4\n", true},
		"a name too long":        {skimmed + one + "[job." + strings.Repeat("x", 64) + "]\nfloor = 4\n", true},
		"a table in quotes":      {skimmed + one + other + "[\"job\".other.more]\n", true},
		"blanks in a head":       {skimmed + one + other + "[ job.other.more ]\n", true},
		"the table of all":       {skimmed + "[job]\nthree = {budget = \"a/k\"}\n", true},
		"jobs at the top":        {"job.three.budget = \"a/k\"\n" + skimmed + one, true},
		"a bracket that is open": {skimmed + other + "more = [ 1,\n" + "[upstream.b.limit.day]\n", true},
		"a string that is open":  {skimmed + other + "more = \"\"\" 1,\n" + "[upstream.b.limit.day]\n", true},
		"an open one at the end": {skimmed + other + "more = [ 1,\n", true},
		"no tables":              {"state_dir = \"s\"\n", true},
		"an array of tables":     {skimmed + one + "[[job.other]]\n", true},
	} {
		left, _ := skim(c.text, "one")
		if whole := left == c.text; whole != c.whole {
			t.Errorf("%s: read whole: %t, want %t:\n%s", name, whole, c.whole, left)
		}
		if strings.Count(left, "\n") != strings.Count(c.text, "\n") {
			t.Errorf("%s: lines were lost:\n%s", name, left)
		}
		for _, job := range []string{"one", "other", "three", ""} {
			readAlike(t, c.text, job)
		}
	}
	left, jobs := skim(skimmed+one+other, "one")
	if strings.Contains(left, "floor = 4") || !strings.Contains(left, "floor = 3") || !slices.Equal(jobs, []string{"one", "other"}) {
		t.Errorf("the jobs %v, and\n%s", jobs, left)
	}
}

// A fault in a table that is read is found at its line, one in another job's is not.
func TestFaultsForAJob(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(file, []byte(skimmed+"[job.other]\nfloor = -1\n\n[job.one]\nfloor = -2\n[store]\nhosts = 0\n"), 0o600))
	for job, want := range map[string][]int{"one": {12, 14}, "other": {9, 14}, "": {14}} {
		c := must.Get(ParseFor(file, job))(t)
		var lines []int
		for _, fault := range slices.Concat(c.doc.errors, c.jobFaults) {
			lines = append(lines, fault.Line)
		}
		if slices.Sort(lines); !slices.Equal(lines, want) {
			t.Errorf("read for %q, errors in the lines %v, want %v", job, lines, want)
		}
	}
	if _, err := ParseFor(filepath.Join(t.TempDir(), "none"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// Lines put together at random, many of which only look like tables, say the same.
func TestReadForAJobAtRandom(t *testing.T) {
	t.Parallel()
	seed := effort.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	lines := []string{
		"[job.one]", "[job.one.fetch]", "[job.two]", "[job.two.fetch]", "[job.three]", "  [job.three.fetch] # [x", "[ job.one ]", "[job . two]", "[[job.two.list]]",
		"[job.\"one\"]", "[job.'a]b']", "[job.-x]", "[job]", "[\"job\".two]",
		"[upstream.b.costs]", "[upstream.b.limit.day]", "[upstream.b.limit.day] # '''", "[upstream.b.credential.k]", "[upstream.b]", "[jobs]", "[store]", "hosts = 2",
		"budget = \"a/k\"", "floor = 3", "floor = 4", "max_wait = \"1m\"", "get = 2", "limit = 5", "window = \"1h\"", "job.two.floor = 1", "two.floor = 1",
		"x = [", "]", "[1],", "[true]", "[\"a\"],", "y = {a = [", "]}", "z = [[1],[2]]", "x = \"\"\"", "\"\"\"", "\"\"\" # [", "y = '''", "'''",
		"w = \"[job.one]\"", "v = '[\"'", "u = \"\\\"[\"", "# [job.one]", "", " ", "\\", "\"\"\"\"\"\"",
	}
	valid, parts := 0, 0
	for range effort.Of(5_000, 40_000, 200_000) {
		var b strings.Builder
		b.WriteString([]string{"", skimmed}[rng.IntN(2)])
		for range 1 + rng.IntN(9) {
			b.WriteString(lines[rng.IntN(len(lines))] + "\n")
		}
		text := b.String()
		if _, err := parseText("costs.toml", text); err != nil {
			continue
		}
		valid++
		for _, job := range []string{"one", "two", ""} {
			if left, _ := skim(text, job); left != text {
				parts++
				readAlike(t, text, job)
			}
		}
	}
	if t.Logf("seed %d: %d of the texts are TOML, %d were read in part", seed, valid, parts); parts < 100 {
		t.Errorf("seed %d: only %d texts were read in part: it shows less than it should", seed, parts)
	}
}

// FuzzReadForAJob looks for a text that says something else when it is read for one job.
func FuzzReadForAJob(f *testing.F) {
	f.Add(skimmed + "[job.one]\nfloor = 1\n[job.other.fetch]\nx = [\n1]\n")
	f.Add("[upstream.a]\nx = '''\n[job.one]\n'''\n[job.one]\nfloor = 1")
	f.Add("a = \"\"\"\\\n[job.one]\\\"\"\"\"\n[job . one]\n[[job.one.b]]\n")
	f.Add(skimmed + "[job.-]\nfloor = 1\n[job._x.fetch]\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 || strings.Contains(text, "\x00") {
			return
		}
		for _, job := range []string{"one", ""} {
			readAlike(t, text, job)
		}
	})
}
