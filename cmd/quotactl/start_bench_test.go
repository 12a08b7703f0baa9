package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// lineSource is the program that the others are compared with.
const lineSource = `package main

import "os"

func main() { os.Stdout.WriteString("quotactl\n") }
`

// peakSource runs a program and prints the most memory that was resident, as the system
// counts it. It is small itself, because a program starts with its parent's memory.
const peakSource = `package main

import (
	"os"
	"strconv"
	"syscall"
)

func main() {
	null, _ := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	pid, err := syscall.ForkExec(os.Args[1], os.Args[1:], &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), 2}})
	if err != nil {
		panic(err)
	}
	var status syscall.WaitStatus
	var usage syscall.Rusage
	if _, err := syscall.Wait4(pid, &status, 0, &usage); err != nil || status.ExitStatus() != 0 {
		panic(status)
	}
	os.Stdout.WriteString(strconv.FormatInt(usage.Maxrss, 10))
}
`

// BenchmarkStart compares the start of commands with that of a Go program that prints a
// line: turn by turn, the median of the wall time and of the peak of resident memory.
// wall/line, cpu/line and memory/line are the ratios. A charge on SQLite waits for the disk most
// of its wall time.
func BenchmarkStart(b *testing.B) {
	release := func(name, source string) string {
		build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags=-s -w")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		return built(b, build, name, source)
	}
	quotactl, line, peak := release("quotactl", ""), release("line", lineSource), release("peak", peakSource)
	server := redistest.Start(b)
	config := func(jobs int) string {
		file := filepath.Join(b.TempDir(), "costs.toml")
		must.Do(b, os.WriteFile(file, []byte(manyJobs(jobs)), 0o600))
		return file
	}
	few, many := config(1), config(1000)
	charge := func(file string, store ...string) []string {
		return append([]string{quotactl, "-c", file, "charge", "shop/main", "get", "--job", "made-0"}, store...)
	}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"version", []string{quotactl, "version"}},
		{"charge/sqlite", charge(few)},
		{"charge/sqlite/1000-jobs", charge(many)},
		{"charge/redis", charge(few, "--store", server.URL(0))},
		{"charge/redis/1000-jobs", charge(many, "--store", server.URL(1))},
	} {
		b.Run(c.name, func(b *testing.B) {
			var walls, cpus [2][]time.Duration
			var peaks [2][]int64
			programs := [2][]string{{line}, c.args}
			for turn := 0; b.Loop(); turn++ {
				for i := range programs {
					i = (i + turn) % len(programs)
					wall, cpu := timesOf(b, programs[i])
					walls[i], cpus[i] = append(walls[i], wall), append(cpus[i], cpu)
					peaks[i] = append(peaks[i], peakOf(b, peak, programs[i]))
				}
			}
			own, base := median(walls[1]), median(walls[0])
			b.ReportMetric(float64(own)/float64(base), "wall/line")
			b.ReportMetric(float64(median(cpus[1]))/float64(median(cpus[0])), "cpu/line")
			b.ReportMetric(float64(own.Microseconds())/1000, "wall-ms")
			b.ReportMetric(float64(base.Microseconds())/1000, "line-ms")
			b.ReportMetric(float64(median(peaks[1]))/float64(median(peaks[0])), "memory/line")
			b.ReportMetric(0, "ns/op") // of a whole turn
		})
	}
}

// timesOf is how long a program takes, by the clock and of the processor.
func timesOf(b *testing.B, args []string) (wall, cpu time.Duration) {
	command := exec.CommandContext(b.Context(), args[0], args[1:]...)
	command.Stderr = os.Stderr
	began := time.Now()
	must.Do(b, command.Run())
	return time.Since(began), command.ProcessState.UserTime() + command.ProcessState.SystemTime()
}

// peakOf is a program's peak of resident memory, in what the system counts.
func peakOf(b *testing.B, peak string, args []string) int64 {
	command := exec.CommandContext(b.Context(), peak, args...)
	command.Stderr = os.Stderr
	return must.Get(strconv.ParseInt(string(must.Get(command.Output())(b)), 10, 64))(b)
}

func median[N cmp.Ordered](list []N) N {
	slices.Sort(list)
	return list[len(list)/2]
}
