package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/internal/presets"
	"github.com/quotactl/quotactl/internal/suggest"
)

func newInitCommand(a *app) *cobra.Command {
	var list, toStdout, asJSON bool
	var only []string
	cmd := &cobra.Command{
		Use:   "init PRESET…",
		Short: "Write a configuration from presets",
		Long: `Write a complete configuration for one or more upstreams: prices, limits, and
how to read what responses say about the quota, with a store and a sample job.
The comments name the sources and what to fill in.

The file is the one that --config names. Init never changes a file that exists.`,
		Example: `  quotactl init --list
  quotactl init youtube
  quotactl init youtube github
  quotactl init youtube --only search.list,videos.list
  quotactl init github --stdout`,
		Args: func(cmd *cobra.Command, args []string) error {
			if toStdout && (list || asJSON) {
				return usage("--stdout writes the configuration itself: leave --list and --json out")
			}
			if list {
				return arguments(cobra.NoArgs)(cmd, args)
			}
			if len(args) == 0 {
				return usage("init needs the name of a preset; quotactl init --list lists them")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			left := slices.DeleteFunc(presets.Names(), func(name string) bool { return slices.Contains(args, name) })
			return left, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if list {
				return a.listPresets(asJSON)
			}
			return a.init(args, only, toStdout, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&list, "list", false, "list the presets")
	flags.StringSliceVar(&only, "only", nil, "keep only these `OPERATIONS`: names or prefix.*, separated by commas")
	flags.BoolVar(&toStdout, "stdout", false, "write to standard output")
	flags.BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

type presetJSON struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
}

func (a *app) listPresets(asJSON bool) error {
	list := []presetJSON{}
	t := a.screen().Table("PRESET", "FOR")
	for _, name := range presets.Names() {
		list = append(list, presetJSON{name, presets.Describe(name)})
		t.Add(name, presets.Describe(name))
	}
	if asJSON {
		return writeJSON(a.stdout, struct {
			Presets []presetJSON `json:"presets"`
		}{list})
	}
	return t.Write(a.stdout)
}

// init writes presets to stdout or to the configuration's file.
func (a *app) init(names, only []string, toStdout, asJSON bool) error {
	for _, name := range names {
		if _, err := presets.Text(name); err != nil {
			return usage("%w%s", err, suggest.DidYouMean(name, presets.Names()))
		}
	}
	text, err := presets.Compose(names, only)
	if err != nil {
		return usage("init: %w", err)
	}
	if toStdout {
		return writeText(a.stdout, string(text))
	}
	if err := writeNew(a.configPath, text); errors.Is(err, fs.ErrExist) {
		return usage("%s already exists: write to another file with --config FILE, or to standard output with --stdout", a.configPath)
	} else if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.stdout, struct {
			Presets []string `json:"presets"`
			File    string   `json:"file"`
		}{names, a.configPath})
	}
	return writeText(a.stdout, fmt.Sprintf("Wrote %s. Its comments say what to fill in; then run quotactl check.\n", a.configPath))
}

// writeNew writes a file that is not there yet, whole or not at all.
func writeNew(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the configuration: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}
