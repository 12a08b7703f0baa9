package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const printed = `goos: linux
pkg: github.com/quotactl/quotactl/testdata/bench
cpu: some
BenchmarkRedis/goroutines=1/peer=empty-2    1    40417 charges/s    1.000 of-empty    11.66 server-µs    1.000 server-of-empty
BenchmarkRedis/goroutines=1/decide/limits=1-2    1    4158.4 charges/s    0.1029 of-empty    15.54 server-of-empty    0.2 of-redis_rate    181.0 server-µs
BenchmarkRedis/goroutines=16/peer=empty-2    1    50474 charges/s    1.000 of-empty    9.447 server-µs
BenchmarkRedis/goroutines=16/decide/limits=1-2    1    1 charges/s    0.1 of-empty    20 server-µs    4.5 server-of-empty
BenchmarkRedis/goroutines=16/decide/limits=1-2    1    2 charges/s    0.3 of-empty    40 server-µs    4.5 server-of-empty
BenchmarkRedis/goroutines=16/decide/limits=1-2    1    3 charges/s    0.5 of-empty    30 server-µs    9.0 server-of-empty
PASS
ok  	github.com/quotactl/quotactl/testdata/bench	1.2s
`

func redis(t *testing.T) section {
	t.Helper()
	for _, s := range sections() {
		if s.bench == "^BenchmarkRedis$" {
			return s
		}
	}
	t.Fatal("there is no section of Redis")
	return section{}
}

// Rows of one name are together, several runs give medians, and what was asked is beside
// each figure, in bold where the figure misses it.
func TestTable(t *testing.T) {
	lines := must.Get(parse(strings.NewReader(printed)))(t)
	made := table{about: "a day"}
	made.add(redis(t), lines, nil)
	want := `Measured on a day.

| measured | callers | a second | ratios | CPU µs a charge | time and size |
|---|---|---|---|---|---|
| **Redis, beside its peers**: ` + "`cd testdata/bench && go test -run '^$' -bench '^BenchmarkRedis$' -timeout 60m -benchtime 1x .`" + ` |  |  |  |  |  |
| *an empty script* | 1 | 40,417 | 1.00 of empty | server 11.7; (1.00 × empty) |  |
| *an empty script* | 16 | 50,474 | 1.00 of empty | server 9.45 |  |
| alone, one limit | 1 | 4,158 | 0.103 of empty; 0.200 of redis_rate | **server 181 (asked at most 110)**; (15.5 × empty) |  |
| alone, one limit | 16 | 2.00 | 0.300 of empty (asked at least 0.300) | server 30.0; (4.50 × empty) (asked at most 4.50) |  |

In bold: 1 that miss what was asked for.
`
	check.Equal(t, made.String(), want, "the table")
}

// A section whose benchmarks failed says so, and shows what they printed.
func TestFailedSection(t *testing.T) {
	made := table{}
	made.add(section{title: "Start", bench: "a|b", pkgs: []string{"./x"}}, nil, errors.New("exit status 1"))
	check.Equal(t, made.rows[0][0], "**Start**: `go test -run '^$' -bench 'a\\|b' -timeout 60m ./x` **failed**", "the section's row")
}

func TestNumber(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", 0.0123: "0.012", 0.3: "0.300", 1: "1.00", 11.66: "11.7", 181.4: "181", 999.9: "1000", 4158.4: "4,158", 5_123_456: "5,123,456", -1200: "-1,200",
	} {
		check.Equal(t, number(value), want, value)
	}
}

// Every figure that something is asked of is of a row that the table calls by words, so
// that a misspelled pattern does not ask in vain.
func TestAskedOfRows(t *testing.T) {
	s := redis(t)
	for _, a := range s.asked {
		found := false
		for name := range s.words {
			_, asks := section{asked: []ask{a}}.asks(line{pkg: "bench", name: name, atOnce: strings.Split(a.atOnce, "|")[0]}, a.unit)
			found = found || asks
		}
		check.Equal(t, found, true, a.name, a.unit)
	}
}

// The table replaces what is between the markers, and nothing else; without them nothing is
// written.
func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	must.Do(t, os.WriteFile(path, []byte("before\n"+begins+"old\n"+ends+"after\n"), 0o600))
	must.Do(t, replace(path, "new\n"))
	check.Equal(t, string(must.Get(os.ReadFile(path))(t)), "before\n"+begins+"\nnew\n\n"+ends+"after\n", "the document")
	must.Do(t, os.WriteFile(path, []byte("no markers\n"), 0o600))
	if err := replace(path, "new\n"); err == nil || !strings.Contains(err.Error(), "has no lines") {
		t.Errorf("replace without markers: %v", err)
	}
	check.Equal(t, string(must.Get(os.ReadFile(path))(t)), "no markers\n", "the document without markers")
}
