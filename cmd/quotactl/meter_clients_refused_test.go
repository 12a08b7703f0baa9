package main

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// Every client does with a refusal what it does with its API's own. A call that fits within the
// wait only takes longer. One that fits within a minute is repeated by some clients, and fails in
// the others. One that is refused for good ends the client, and what it prints says who refused;
// so does a store that cannot be reached. Nothing refused leaves.
func TestRefusedClients(t *testing.T) {
	t.Parallel()
	effort.Processes(t)
	effort.Unraced(t)
	chosen := chosenClients()
	k := newClientKit(t, chosen)
	for _, c := range chosen {
		c.scenarios = c.first()
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for name, refuse := range map[string]func(*testing.T, *clientRun, client){
				"for good": refusedForGood, "within the wait": refusedWithinWait, "within a minute": refusedWithinMinute, "store away": refusedWithoutStore,
			} {
				if name == "store away" && c.persists {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					run := k.prepare(t)
					began := time.Now()
					refuse(t, run, c)
					t.Logf("ended after %v with code %d:\n%s", time.Since(began).Round(time.Millisecond), run.code, run.stderr)
				})
			}
		})
	}
}

func refusedForGood(t *testing.T, run *clientRun, c client) {
	run.spendAll(t, c)
	run.metered(t, c, append(c.flags(), "--quiet", "--keep-exit")...)
	check.Equal(t, run.code == 0, false, "the client succeeded")
	check.Equal(t, len(run.apis.counted()), 0, "operations that arrived")
	check.Contains(t, run.stderr, c.shown(), "what the client says of the refusal")
}

func refusedWithinWait(t *testing.T, run *clientRun, c client) {
	run.window(t, "3s")
	run.spendAll(t, c)
	run.metered(t, c, c.flags()...)
	run.holds(t, c)
}

func refusedWithinMinute(t *testing.T, run *clientRun, c client) {
	run.window(t, "40s")
	run.spendAll(t, c)
	run.metered(t, c, append(c.flags(), "--quiet", "--keep-exit", "--wait", "0s")...)
	if c.repeats {
		run.holds(t, c)
		return
	}
	check.Equal(t, run.code == 0, false, "the client succeeded")
	check.Equal(t, len(run.apis.counted()), 0, "operations that arrived")
}

func refusedWithoutStore(t *testing.T, run *clientRun, c client) {
	run.edit(t, `"sqlite:ledger.db"`, `"redis://127.0.0.1:1/0"`)
	run.metered(t, c, append(c.flags(), "--quiet")...)
	check.Equal(t, run.code, exitUnavailable, "meter's exit code")
	check.Equal(t, len(run.apis.counted()), 0, "operations that arrived")
}

// window replaces the window of every limit of the configuration.
func (r *clientRun) window(t *testing.T, span string) { r.edit(t, `"24h"`, `"`+span+`"`) }

// edit replaces a part of the configuration.
func (r *clientRun) edit(t *testing.T, old, with string) {
	t.Helper()
	config := string(must.Get(os.ReadFile(r.config()))(t))
	check.Contains(t, config, old)
	must.Do(t, os.WriteFile(r.config(), []byte(strings.ReplaceAll(config, old, with)), 0o600))
}

// first is one scenario of a client.
func (c client) first() []string {
	if slices.Contains(c.scenarios, "token") {
		return []string{"token"}
	}
	return c.scenarios[:1]
}

// spendAll charges what is left of the budget that a client's scenario would be charged to.
func (r *clientRun) spendAll(t *testing.T, c client) {
	t.Helper()
	operations := slices.Sorted(maps.Keys(theScenario(c.scenarios[0]).spends))
	upstream, name, _ := strings.Cut(operations[0], " ")
	charge := exec.CommandContext(t.Context(), "quotactl", "charge", upstream+"/key1", name, "--units", "2000", "-c", r.config())
	charge.Stderr = os.Stderr
	must.Do(t, charge.Run())
}

// shown is what a client says of a final refusal: its text, if it shows an answer's.
func (c client) shown() string {
	if c.refused != "" {
		return c.refused
	}
	return "is spent until"
}
