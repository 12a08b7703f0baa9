package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/draft"
	"github.com/quotactl/quotactl/internal/gateway"
	"github.com/quotactl/quotactl/internal/presets"
	"github.com/quotactl/quotactl/jobs"
)

// ofPresets is what --observe without a value names.
const ofPresets = "presets"

// metersOnly are flags that --observe has no use for.
var metersOnly = []string{"job", "region", "budget", "wait", "on-refusal", "keep-exit"}

// observation checks the flags of a first look at a program's calls.
func (f *meterFlags) observation(cmd *cobra.Command) error {
	if !f.observes {
		if f.draft != "" {
			return usage("--draft writes what --observe sees: add --observe, or --observe=HOST")
		}
		return nil
	}
	for _, name := range metersOnly {
		if cmd.Flags().Changed(name) {
			return usage("--observe charges and refuses nothing: leave --%s out", name)
		}
	}
	if f.quiet && f.draft == "" {
		return usage("--observe with --quiet would say nothing: leave --quiet out, or add --draft FILE")
	}
	return f.checkDraft()
}

// checkDraft fails if the draft could not be written.
func (f *meterFlags) checkDraft() error {
	if f.draft == "" {
		return nil
	}
	if _, err := os.Lstat(f.draft); err == nil {
		return draftExists(f.draft)
	}
	probe, err := os.CreateTemp(filepath.Dir(f.draft), ".quotactl-draft-*")
	if err != nil {
		return usage("--draft %s cannot be written: %w; name a file in a folder that exists and can be written", f.draft, err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func draftExists(path string) error {
	return usage("--draft %s: the file exists already, and is not changed: name another", path)
}

// observe runs a command behind a gateway that charges nothing, and says what it called.
func (a *app) observe(ctx context.Context, f meterFlags, command []string) error {
	cfg, err := presetsConfig()
	if err != nil {
		return err
	}
	o := &gateway.Observation{Log: draft.NewLog(os.Environ())}
	if err := f.observed(cfg, o); err != nil {
		return err
	}
	if o.All {
		a.say("this run opens the connections to all hosts: what the command trusts includes a CA that vouches for every name")
	}
	m := &metering{app: a, flags: f, cfg: cfg, command: command, observation: o}
	m.do(context.WithoutCancel(ctx), jobs.OutsideRun{})
	if m.err != nil {
		return m.err
	}
	err = m.writeDraft()
	if failed := m.flags.exit(m.code, m.tally); failed != nil {
		if err != nil {
			a.say(err.Error())
		}
		return failed
	}
	return err
}

// presetsConfig is all presets as one configuration.
func presetsConfig() (*config.Config, error) {
	var together []string
	for _, name := range presets.Names() { // of two for one upstream the first
		if _, err := presets.Compose(append(together, name), nil); err == nil {
			together = append(together, name)
		}
	}
	text, err := presets.Compose(together, nil)
	if err != nil {
		return nil, err
	}
	return config.ParseText("the presets", string(text))
}

// observed reads which hosts are opened.
func (f *meterFlags) observed(cfg *config.Config, o *gateway.Observation) error {
	var keys [2]string // hosts and base_url
	for _, host := range f.hosts {
		switch {
		case host == ofPresets:
			o.Hosts = cfg.Upstreams
		case host == "*":
			o.All = true
		case strings.HasPrefix(host, "http://"):
			keys[1] += fmt.Sprintf("%q,", host)
		default:
			keys[0] += fmt.Sprintf("%q,", strings.ToLower(host))
		}
	}
	text := "[upstream.observed]\n"
	for i, name := range []string{"hosts", "base_url"} {
		if keys[i] != "" {
			text += name + " = [" + keys[i] + "]\n"
		}
	}
	text += "unknown_operation = 1\n[upstream.observed.limit.any]\nquota = 1\nwindow = \"1h\"\n[upstream.observed.credential.any]\n"
	named, err := config.ParseText("--observe", text)
	if err == nil {
		err = named.Err()
	}
	var faults config.Errors
	if errors.As(err, &faults) {
		return usage("--observe: %s", faults[0].Message)
	}
	if err == nil {
		o.Hosts = slices.Concat(o.Hosts, named.Upstreams)
	}
	return err
}

// writeObserved writes what was seen to standard error.
func (m *metering) writeObserved() {
	on := m.errorScreen()
	t := on.Table(">CALLS", "ANSWERS", "CALL")
	t.Wraps = true
	for _, h := range m.observation.Log.Hosts() {
		for _, kind := range h.Kinds() {
			row := h.Rows[kind]
			call := strings.TrimSpace(kind.Method + " " + h.Name + kind.Path)
			switch {
			case kind.Preset != "":
				call += " (" + kind.Preset + ": " + kind.Operation + ")"
			case kind.Token:
				call += " (asks for a token)"
			}
			t.Add(on.Number(int64(row.Calls)), countsText(row.Answers), call)
		}
		if text := credentialsText(h); text != "" {
			t.Below(h.Name+": ", text)
		}
	}
	tunnels := on.Table(">CONNECTIONS", "NOT OPENED")
	for _, host := range slices.Sorted(maps.Keys(m.tally.Tunnels)) {
		tunnels.Add(on.Number(int64(m.tally.Tunnels[host])), host)
	}
	hint := ""
	if !tunnels.Empty() {
		hint = "quotactl: --observe=HOST opens the connections to a host, and --observe='*' those to all\n"
	}
	if t.Empty() {
		hint = "quotactl: no call to a host that is opened was seen\n" + hint
	}
	_ = errors.Join(t.Write(m.stderr), tunnels.Write(m.stderr), writeText(m.stderr, hint)) // as say
}

// countsText is "2xx", or "2xx 3, 429 1" if there are several.
func countsText(counts map[string]int) string {
	names := slices.Sorted(maps.Keys(counts))
	if len(names) == 1 {
		return names[0]
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(names, ", ")
}

// credentialsText is where credentials were, and what answers said of quotas.
func credentialsText(h *draft.Host) string {
	var parts []string
	for _, place := range h.Credentials() {
		parts = append(parts, place.String())
	}
	if len(parts) > 0 {
		parts = []string{"credential in " + strings.Join(parts, " and ")}
		if len(h.Variables) > 0 {
			parts[0] += ", as in $" + strings.Join(h.Variables, " and $")
		}
	}
	for _, header := range slices.Sorted(maps.Keys(h.Limits)) {
		parts = append(parts, header+" "+h.Limits[header])
	}
	return strings.Join(parts, "; ")
}

// writeDraft writes the configuration.
func (m *metering) writeDraft() error {
	if m.flags.draft == "" {
		return nil
	}
	text, err := m.observation.Log.Config()
	if err != nil {
		return err
	}
	if text == nil {
		m.say("no draft was written: it would have no upstream")
		return nil
	}
	if err := writeNew(m.flags.draft, text); errors.Is(err, fs.ErrExist) {
		return draftExists(m.flags.draft)
	} else if err != nil {
		return err
	}
	m.say(fmt.Sprintf("wrote %s: fill in what its comments say; then run quotactl check -c %s", m.flags.draft, m.flags.draft))
	return nil
}
