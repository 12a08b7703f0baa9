package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// seeding makes the ledger and the jobs' records that the screens show; the number before a
// command is how long after the one before it is called.
var seeding = map[string][]string{
	"one": {
		"0s charge shop/main get --units 300 --job nightly --id a",
		"2h charge shop/main get --units 250 --job hourly --id b",
		"10m run --once hourly",
		"20m charge shop/main list --job hourly --id c",
	},
	"nine": {
		"0s charge big/key1 get --units 3000 --job backfill --id a",
		"1h charge big/key1 get --units 2000 --job nightly --region US --id b",
		"30m run --once hourly",
		"10m run --once broken",
		"5m charge big/key1 list --units 60 --job hourly --region GB --id c",
		"4m charge big/key1 get --units 400 --job backfill --id d --reserve 10m",
		"20s charge big/key1 get --units 12 --id e",
	},
}

// shownScreens are the commands whose screens are kept.
var shownScreens = []string{
	"status", "status BUDGET", "status -v", "jobs", "next -n 6", "runs", "runs --errors", "plan --for 24h", "why BUDGET get", "why BUDGET get -v",
	"ledger BUDGET", "ledger BUDGET --by job", "ledger BUDGET --since 6h --by hour", "check",
	"charge BUDGET get --id x", "charge BUDGET get --units 5000 --id y", "charge BUDGET get --dry-run --id z",
	"charge BUDGET get --reserve 5m --id r", "settle BUDGET r 3", "release BUDGET q", "reset BUDGET --yes", "status",
}

// signedScreens show who did something, and where: how their lines wrap depends on that.
var signedScreens = []string{
	"lock BUDGET --for 2h --why closed\u00a0for\u00a0maintenance", "pause hourly --note its\u00a0consumer\u00a0is\u00a0being\u00a0moved", "trigger hourly", "status", "status -v", "jobs",
	"trigger hourly --cancel", "cancel hourly", "resume hourly", "unlock BUDGET",
}

// The screens of every command, on terminals of three sizes and in a pipe, of a configuration of
// one limit and of one of nine: each is as it was looked at.
func TestScreens(t *testing.T) {
	effort.Processes(t)
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // what serves signals begins outside of the bubble
	for kind, budget := range map[string]string{"one": "shop/main", "nine": "big/key1"} {
		config := must.Get(os.ReadFile(filepath.Join("..", "..", "testdata", "screens", kind+".toml")))(t)
		for name, on := range map[string]struct{ width, height int }{"80": {80, 24}, "120": {120, 40}, "200": {200, 50}, "pipe": {}} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				golden := must.Get(filepath.Abs(filepath.Join("..", "..", "testdata", "screens", kind+"-"+name+".txt")))(t)
				t.Chdir(t.TempDir())
				must.Do(t, os.WriteFile("costs.toml", config, 0o600))
				got, signed := screensOf(t, on.width, on.height, kind, budget)
				for line := range strings.SplitSeq(plain.ReplaceAllString(got+signed, ""), "\n") {
					if n := len([]rune(line)); on.width > 0 && n > on.width && !strings.HasPrefix(line, "quotactl: ") && !strings.HasPrefix(line, "costs.toml:") {
						t.Errorf("a line of %d columns: %s", n, line)
					}
				}
				for _, section := range strings.Split(got, "$ quotactl ")[1:] { // no budget takes more than one screen
					command, screen, _ := strings.Cut(section, "\n")
					one := strings.HasPrefix(command, "status "+budget) || strings.HasPrefix(command, "why") || strings.HasPrefix(command, "plan")
					if n := strings.Count(screen, "\n") - 2; one && !strings.HasSuffix(command, " -v") && on.height > 0 && n > on.height {
						t.Errorf("%s takes %d lines", command, n)
					}
				}
				for _, says := range []string{"closed for maintenance", "its consumer is being moved", "a pass is requested", "resumed", "unlocked"} {
					check.Contains(t, strings.Join(strings.Fields(plain.ReplaceAllString(signed, "")), " "), says, "signed screens")
				}
				got = strings.ReplaceAll(got, "\x1b", "␛")
				if *update {
					must.Do(t, os.WriteFile(golden, []byte(got), 0o600)) //nolint:gosec // of this repository
				}
				check.Equal(t, got, string(must.Get(os.ReadFile(golden))(t)), "screens; go test ./cmd/quotactl -run TestScreens -update writes them anew")
			})
		}
	}
}

// plain matches the sequences that colour.
var plain = regexp.MustCompile("\x1b\\[[0-9;]*m")

// A charge that waits says on the terminal's last line until when, and for what.
func TestChargeSaysWhatItWaitsFor(t *testing.T) {
	config := must.Get(os.ReadFile(filepath.Join("..", "..", "testdata", "screens", "one.toml")))(t)
	t.Chdir(t.TempDir())
	must.Do(t, os.WriteFile("costs.toml", config, 0o600))
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 20, 22, 59, 50, 0, time.UTC))) // ten seconds before the reset
		var out bytes.Buffer
		a := &app{
			store: openForever{memstore.New(func() int64 { return time.Now().UnixMicro() })}, stdout: io.Discard, stderr: &out, env: everySecret, now: time.Now, zone: time.UTC,
			size: func(io.Writer) (int, int, bool) { return 80, 24, true },
		}
		for _, units := range []string{"900", "1"} {
			check.Equal(t, a.execute(t.Context(), strings.Fields("charge shop/main get --units "+units+" --wait 1m")), exitDone)
		}
		check.Contains(t, out.String(), "1s  waiting until 23:00:00 (in 9s) for 1 unit of shop/main, limit day")
		check.Equal(t, strings.HasSuffix(out.String(), "\r\x1b[K"), true, "nothing is left behind")
	})
}

// inColour is an environment in which each secret is set, and colours are wanted.
func inColour(name string) (string, bool) {
	if name == "NO_COLOR" || name == "TERM" {
		return "", false
	}
	return everySecret(name)
}

// openForever is a store that several commands use.
type openForever struct{ *memstore.Store }

func (openForever) Close() error { return nil }

// screensOf is what commands write on a terminal, or for no width into a pipe.
func screensOf(t *testing.T, width, height int, kind, budget string) (got, signed string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 20, 18, 2, 3, 0, time.UTC)))
		zone := must.Get(time.LoadLocation("Europe/Berlin"))(t)
		store := openForever{memstore.New(func() int64 { return time.Now().UnixMicro() })}
		call := func(to io.Writer, width, height int, line string) int {
			a := &app{store: store, stdout: to, stderr: to, env: inColour, now: time.Now, zone: zone, size: func(io.Writer) (int, int, bool) { return width, height, width > 0 }}
			words := strings.Split(strings.ReplaceAll(line, "BUDGET", budget), " ")
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "\u00a0", " ")
			}
			return a.execute(t.Context(), words)
		}
		for _, line := range seeding[kind] {
			after, line, _ := strings.Cut(line, " ")
			time.Sleep(must.Get(time.ParseDuration(after))(t))
			var out bytes.Buffer
			if code := call(&out, 0, 0, line); code != exitDone && !strings.Contains(line, "broken") {
				t.Fatalf("%s: exit code %d\n%s", line, code, out.String())
			}
		}
		time.Sleep(90 * time.Second)
		screens := func(lines []string) string {
			var b strings.Builder
			for _, line := range lines {
				fmt.Fprintf(&b, "$ quotactl %s\n", strings.ReplaceAll(line, "BUDGET", budget))
				code := call(&b, width, height, line)
				fmt.Fprintf(&b, "[%d]\n\n", code)
			}
			return b.String()
		}
		got, signed = screens(shownScreens), screens(signedScreens)
	})
	return got, signed
}
