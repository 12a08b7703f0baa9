package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// Every client of the table does its scenarios through quotactl meter as it does them without:
// it prints the same and asks the upstreams the same, and what they count by themselves is in
// the ledger and is what the scenarios should cost. Without the hooks a client may not: what it
// did then is in the table.
func TestMeteredClients(t *testing.T) {
	t.Parallel()
	effort.Processes(t)
	effort.Unraced(t)
	chosen := chosenClients()
	k := newClientKit(t, chosen)
	t.Cleanup(func() { k.inDocs(t) })
	for _, c := range chosen {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			with, without, bare := k.prepare(t), k.prepare(t), k.prepare(t)
			with.metered(t, c, c.flags()...)
			with.did(t, c)
			without.metered(t, c, "--no-hooks")
			outcome := without.outcome(t)
			k.without.Store(c.name, outcome)
			if outcome != metered { // it would not reach the fakes by itself
				return
			}
			without.did(t, c)
			bare.bare(t, c)
			bare.holds(t, c)
			for _, run := range []*clientRun{with, without} {
				check.Equal(t, run.stdout, bare.stdout, "stdout with and without meter")
				sameRequests(t, run.apis.seen(), bare.apis.seen())
			}
		})
	}
}

// did fails the test unless a metered client did its scenarios, charged.
func (r *clientRun) did(t *testing.T, c client) {
	t.Helper()
	r.holds(t, c)
	r.inLedger(t)
}

// outcome is what became of a client under meter, by what arrived and by what meter has seen.
// The clients that take no proxy call hosts below .invalid, which do not exist: so such a client
// fails, and nothing of it leaves this machine.
func (r *clientRun) outcome(t *testing.T) outcome {
	t.Helper()
	if len(r.apis.seen()) > 0 {
		return metered
	}
	check.Equal(t, r.code == 0, false, "the client succeeded")
	r.inLedger(t)
	if strings.HasSuffix(r.stderr, ": no call to an upstream of the configuration was seen\n") {
		return beside
	}
	check.Contains(t, r.stderr, "broken off by the program, as one with its own CA list or a pinned key does")
	return fails
}

// chosenClients are those that are run with this effort.
func chosenClients() []client {
	least := effort.Of(small, ci, full)
	return slices.DeleteFunc(slices.Clone(clients), func(c client) bool { return c.share < least })
}

// flags are those by which meter reaches a client.
func (c client) flags() []string {
	if c.java {
		return []string{"--java"}
	}
	return nil
}

// A clientRun is a client's program that has ended, and the fakes that it called.
type clientRun struct {
	kit            *clientKit
	apis           *apis
	dir            string // where costs.toml and the ledger are
	stdout, stderr string
	code           int
}

// bare runs a client by the company's proxy alone.
func (r *clientRun) bare(t *testing.T, c client) {
	t.Helper()
	argv := r.kit.argv(c)
	r.run(t, exec.CommandContext(t.Context(), argv[0], argv[1:]...), trusting(t, r.apis.file)...)
}

// metered runs a client through quotactl meter.
func (r *clientRun) metered(t *testing.T, c client, flags ...string) {
	t.Helper()
	args := append([]string{"meter", "-c", r.config()}, flags...)
	var roots []string
	if c.own != "" {
		roots = []string{c.own + "=" + r.apis.file}
	}
	r.run(t, exec.CommandContext(t.Context(), "quotactl", append(append(args, "--"), r.kit.argv(c)...)...), roots...)
}

func (k *clientKit) prepare(t *testing.T) *clientRun {
	run := &clientRun{kit: k, apis: startAPIs(t, k.repositories), dir: t.TempDir()}
	config := must.Get(os.ReadFile(filepath.Join(clientsFolder, "costs.toml")))(t)
	must.Do(t, os.WriteFile(run.config(), []byte(patientConfig(string(config))), 0o600))
	return run
}

func (r *clientRun) config() string { return filepath.Join(r.dir, "costs.toml") }

// run runs a command with the least environment, and more variables: a company's proxy, and a
// file of roots that holds the fakes'.
func (r *clientRun) run(t *testing.T, cmd *exec.Cmd, more ...string) {
	t.Helper()
	company := r.apis.company(t)
	cmd.Dir = clientsFolder
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(),
		"HTTPS_PROXY=" + company, "https_proxy=" + company, "HTTP_PROXY=" + company, "http_proxy=" + company,
		"SSL_CERT_FILE=" + r.apis.file, "OWN_ROOTS=" + r.apis.file, "PYTHON=" + r.kit.programs["python"],
		"RUSTUP_HOME=" + cmp.Or(os.Getenv("RUSTUP_HOME"), filepath.Join(os.Getenv("HOME"), ".rustup")), // of a cargo that rustup installed
	}, more...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r.stdout, r.stderr, r.code = stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	if err != nil && r.code <= 0 {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, r.stderr)
	}
}

// holds fails the test unless the program did its scenarios, and the upstreams counted what
// these cost.
func (r *clientRun) holds(t *testing.T, c client) {
	t.Helper()
	var printed strings.Builder
	want := map[string]spend{}
	for _, name := range c.scenarios {
		printed.WriteString(name + ": " + theScenario(name).result + "\n")
		for operation, s := range theScenario(name).spends {
			want[operation] = spend{want[operation].units + s.units, want[operation].calls + s.calls}
		}
	}
	check.Equal(t, r.stdout, printed.String(), "stdout")
	equalSpends(t, r.apis.counted(), want, "the upstreams' count")
	check.Equal(t, r.apis.refused, 0, "calls that the upstreams refused")
	check.Equal(t, r.code, 0, "exit code")
	if t.Failed() {
		t.Log(r.stderr)
	}
}

// inLedger fails the test unless the ledger has what the upstreams counted.
func (r *clientRun) inLedger(t *testing.T) {
	t.Helper()
	var status struct {
		Budgets []struct {
			Budget string
			Limits []struct{ Used int }
		}
	}
	must.Do(t, json.Unmarshal(r.ask(t, "status", "--json"), &status))
	charged := map[string]spend{}
	for _, b := range status.Budgets {
		if b.Limits[0].Used == 0 {
			continue
		}
		var ledger struct {
			Rows []struct {
				Name               string
				Units, Calls, Open int
			}
		}
		must.Do(t, json.Unmarshal(r.ask(t, "ledger", b.Budget, "--json"), &ledger))
		upstream, _, _ := strings.Cut(b.Budget, "/")
		for _, row := range ledger.Rows {
			charged[upstream+" "+row.Name] = spend{row.Units, row.Calls}
			check.Equal(t, row.Open, 0, "reservations that nothing settled, of", upstream, row.Name)
		}
	}
	equalSpends(t, charged, r.apis.counted(), "the ledger beside the upstreams' count")
}

// ask runs a command of quotactl on the run's configuration, and returns its stdout.
func (r *clientRun) ask(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "quotactl", append(args, "-c", r.config())...)
	cmd.Stderr = os.Stderr
	return must.Get(cmd.Output())(t)
}

// equalSpends reports every operation that was not spent on as wanted.
func equalSpends(t *testing.T, got, want map[string]spend, about string) {
	t.Helper()
	all := maps.Clone(want)
	maps.Copy(all, got)
	for _, operation := range slices.Sorted(maps.Keys(all)) {
		check.Equal(t, got[operation], want[operation], about, operation)
	}
}

// sameRequests reports the requests that only one of two runs made.
func sameRequests(t *testing.T, metered, bare []string) {
	t.Helper()
	balance := map[string]int{}
	for _, request := range metered {
		balance[request]++
	}
	for _, request := range bare {
		balance[request]--
	}
	for _, request := range slices.Sorted(maps.Keys(balance)) {
		check.Equal(t, balance[request], 0, "how much more often the metered program asked", request)
	}
}
