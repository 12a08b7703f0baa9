package proc

import (
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// A command's lines are all read, whether it ends by itself or is stopped with all that
// it started; its end is that of the command itself.
func TestAGroupEnds(t *testing.T) {
	effort.Processes(t)
	for script, want := range map[string]struct {
		end   string
		lines []string
	}{
		"echo a; echo b >&2; exit 3":                  {"exit status 3", []string{"stderr: b", "stdout: a"}},
		"sleep 60 & echo a":                           {"", []string{"stdout: a"}},
		"echo stop; sleep 60; sleep 60":               {"signal: terminated", []string{"stdout: stop"}},
		"trap '' TERM; echo stop; sleep 60; sleep 60": {"signal: killed", []string{"stdout: stop"}},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex // guards lines
			var lines []string
			stopped := make(chan struct{}, 1)
			g := must.Get(Start(exec.Command("sh", "-c", script), slog.New(slog.DiscardHandler), func(stream, kept string, _ int) {
				mu.Lock()
				lines = append(lines, stream+": "+kept)
				mu.Unlock()
				if kept == "stop" {
					stopped <- struct{}{}
				}
			}))(t)
			select {
			case <-g.Exited():
				g.Release(nil)
			case <-stopped:
				g.Stop(100*time.Millisecond, nil)
			}
			<-g.gone
			end := ""
			if err := g.Wait(); err != nil {
				end = err.Error()
			}
			slices.Sort(lines)
			if end != want.end || !slices.Equal(lines, want.lines) {
				t.Errorf("ended by %q with %q, want %q with %q", end, lines, want.end, want.lines)
			}
		})
	}
	if _, err := Start(exec.Command("./not-there"), slog.New(slog.DiscardHandler), nil); err == nil {
		t.Error("what is not there was started")
	}
}
