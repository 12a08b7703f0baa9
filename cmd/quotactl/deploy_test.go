package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/daemon"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

func deployed(t *testing.T, name string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("..", "..", "deploy", name)))(t)
	return string(text)
}

// unitFile has the values of deploy/quotactl.service by section and key.
func unitFile(t *testing.T) map[string][]string {
	t.Helper()
	values, section := map[string][]string{}, ""
	for line := range strings.Lines(deployed(t, "quotactl.service")) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = line
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok || strings.ContainsAny(value, "#") { // systemd has no comments after a value
				t.Fatalf("%s: %q", section, line)
			}
			values[section+key] = append(values[section+key], value)
		}
	}
	return values
}

// span reads a span of time as systemd writes it.
func span(t *testing.T, text string) time.Duration {
	t.Helper()
	return must.Get(time.ParseDuration(strings.ReplaceAll(text, "min", "m")))(t)
}

// longestStop is what a stop takes at most with jobs of the default grace, on the
// store that takes longest.
func longestStop() time.Duration {
	longest := time.Duration(0)
	for _, url := range []string{"sqlite:quotactl.db", "redis://127.0.0.1"} {
		longest = max(longest, daemon.StopTakes(jobs.DefaultGrace, open.Timeout(url, config.Store{})))
	}
	return longest
}

// notAgain are the exit codes beside 0 after which docs/operations.md says not to start
// the daemon again, as the unit file has them.
func notAgain(t *testing.T) string {
	t.Helper()
	var codes []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([1-9]\d*) \|.*\| no\b[^|]*\|$`).FindAllStringSubmatch(documents(t)["docs/operations.md"], -1) {
		codes = append(codes, row[1])
	}
	if want := []string{strconv.Itoa(exitUsage), strconv.Itoa(exitInterrupted)}; !slices.Equal(codes, want) {
		t.Errorf("the page says so of %v, want %v", codes, want)
	}
	return strings.Join(codes, " ")
}

// The unit file leaves a stop the time that it takes, gives no daemon up that lives,
// starts one anew that does not, and calls the program as it is to be called.
func TestUnitFile(t *testing.T) {
	unit := unitFile(t)
	for key, want := range map[string]string{
		"Type": "notify", "KillMode": "mixed", "Restart": "on-failure", "RestartPreventExitStatus": notAgain(t),
		"ExecReload": "/bin/kill -HUP $MAINPID", "StateDirectory": "quotactl", "LimitCORE": "0",
	} {
		check.EqualSlices(t, unit["[Service]"+key], []string{want}, key, "is")
	}
	program, arguments, _ := strings.Cut(unit["[Service]ExecStart"][0], " ")
	check.Equal(t, filepath.Base(program), "quotactl", "it starts", program)
	check.NoError(t, parses(arguments, true), "quotactl", arguments)
	stop := span(t, unit["[Service]TimeoutStopSec"][0])
	if stop <= longestStop() {
		t.Errorf("TimeoutStopSec is %s; a stop may take %s", stop, longestStop())
	}
	if sum := regexp.MustCompile(`slow to close;\n# ([0-9]+) s in all`).FindStringSubmatch(deployed(t, "quotactl.service")); sum == nil || sum[1] != strconv.Itoa(int(longestStop().Seconds())) {
		t.Errorf("the comment's sum is %q, want %s", sum, longestStop())
	}
	if watchdog := span(t, unit["[Service]WatchdogSec"][0]); watchdog/2 < 2*jobs.DefaultPoll || watchdog > 5*time.Minute {
		t.Errorf("WatchdogSec is %s", watchdog)
	}
	// A start that fails at once runs into the limit, and is not tried for ever.
	burst := must.Get(strconv.Atoi(unit["[Unit]StartLimitBurst"][0]))(t)
	if within, pause := span(t, unit["[Unit]StartLimitIntervalSec"][0]), span(t, unit["[Service]RestartSec"][0]); time.Duration(burst)*pause >= within {
		t.Errorf("%d starts %s after each other are not %s", burst, pause, within)
	}
}

// The unit's environment tells a crash from a wrong configuration: without it a crash ends
// with 2 as well, with it by a signal.
func TestACrashIsStartedAnew(t *testing.T) {
	p := newProgram(t, "https://upstream.invalid", "run")
	p.Env = append(p.Env, unitFile(t)["[Service]Environment"]...)
	p.start()
	p.logged("msg=job job=trending")
	p.signal(syscall.SIGABRT) // the watchdog's
	p.exits(-1)
	// Which signal it is does not matter to systemd: one run of some thousand ends with another,
	// since the runtime itself may crash while it writes down all goroutines of a program that is
	// interrupted at any place.
	if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
		t.Errorf("it ended with %v", p.ProcessState)
	}
}

// instructions are those of deploy/Containerfile by their stages.
func instructions(t *testing.T) (stages [][]string) {
	t.Helper()
	text := strings.ReplaceAll(deployed(t, "Containerfile"), "\\\n", "")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "FROM "):
			stages = append(stages, []string{line})
		default:
			stages[len(stages)-1] = append(stages[len(stages)-1], line)
		}
	}
	return stages
}

// The image's process is the program itself, as nobody's user, which SIGTERM drains;
// it finds certificates, its configuration and a place that it may write to.
func TestContainerfile(t *testing.T) {
	stages := instructions(t)
	must.Equal(t, len(stages), 2, "stages, want one that builds and one that is the image")
	build, image := strings.Join(stages[0], "\n"), stages[1]
	if module, err := os.ReadFile(filepath.Join("..", "..", "go.mod")); err != nil ||
		!strings.Contains(string(module), "\ngo "+regexp.MustCompile(`FROM golang:(\S+) AS build`).FindStringSubmatch(build)[1]+".") {
		t.Errorf("it is built by %s, and go.mod asks for another Go (%v)", stages[0][0], err)
	}
	if !strings.Contains(build, "CGO_ENABLED=0 go build") || !strings.Contains(build, "./cmd/quotactl") {
		t.Errorf("it builds by\n%s", build)
	}
	values := map[string]string{}
	for _, line := range image {
		name, value, _ := strings.Cut(line, " ")
		if name == "RUN" {
			t.Errorf("%s: what runs in the image stands in its build", line)
		}
		values[name] += value + "\n"
	}
	var entry, command []string
	for name, into := range map[string]*[]string{"ENTRYPOINT": &entry, "CMD": &command} {
		check.NoError(t, json.Unmarshal([]byte(values[name]), into), name, values[name], "a shell would stand between the signals and the program")
	}
	if len(entry) != 1 || !strings.Contains(values["COPY"], "--from=build /out/quotactl "+entry[0]+"\n") {
		t.Errorf("it starts %q", entry)
	}
	check.NoError(t, parses(strings.Join(command, " "), true), "quotactl", command)
	if !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*\n$`).MatchString(values["USER"]) {
		t.Errorf("USER %s: a number, as only that is known not to be root", values["USER"])
	}
	check.Equal(t, values["STOPSIGNAL"], "SIGTERM\n", "STOPSIGNAL")
	state := strings.TrimSpace(values["VOLUME"])
	for what, line := range map[string]string{
		"COPY": "--from=build --chown=" + strings.TrimSpace(values["USER"]) + " /out/state " + state,
		"ENV":  "STATE_DIRECTORY=" + state,
	} {
		check.Contains(t, values[what], line+"\n", what, "… lacks", line)
	}
	if !strings.Contains(values["ENV"], "QUOTACTL_CONFIG=/etc/quotactl/costs.toml") || !strings.Contains(values["COPY"], "/etc/ssl/certs/ca-certificates.crt") {
		t.Errorf("ENV %sCOPY %s", values["ENV"], values["COPY"])
	}
}

// While new shares reach one host after the other, no alert fires: the expression holds for
// a while after the last charge by the old ones.
func TestAlertOfSharesWaits(t *testing.T) {
	alert := regexp.MustCompile(`QuotactlSharesDiffer\n +expr: .* < (\d+)\n +for: (\S+)`).FindStringSubmatch(deployed(t, "alerts.yml"))
	if alert == nil {
		t.Fatal("the alert has no expression with a bound, or does not wait")
	}
	if holds := span(t, alert[1]+"s"); span(t, alert[2]) <= holds {
		t.Errorf("it fires after %s, and its expression holds for %s after the last charge", alert[2], holds)
	}
}
