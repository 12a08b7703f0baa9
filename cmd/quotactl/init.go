package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/internal/presets"
	"github.com/quotactl/quotactl/internal/suggest"
)

func newInitCommand(a *app) *cobra.Command {
	var list, toStdout, asJSON bool
	cmd := &cobra.Command{
		Use:   "init PRESET",
		Short: "Write a configuration to begin with",
		Long: `Write a preset as the configuration: costs, request patterns, limits and what
responses say about the quota of an upstream that many call. Its first lines
name the sources and what is to be filled in. The file is the one that --config
names; one that is there already is left as it is.`,
		Example: `  quotactl init --list
  quotactl init youtube
  quotactl init github --stdout`,
		Args: func(cmd *cobra.Command, args []string) error {
			if toStdout && (list || asJSON) {
				return usage("--stdout writes a preset as it is: leave --list and --json out")
			}
			if list {
				return arguments(cobra.NoArgs)(cmd, args)
			}
			if len(args) == 0 {
				return usage("init writes a preset, and none is named; quotactl init --list lists them")
			}
			return arguments(cobra.ExactArgs(1))(cmd, args)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return presets.Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if list {
				return a.listPresets(asJSON)
			}
			return a.init(args[0], toStdout, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&list, "list", false, "list the presets")
	flags.BoolVar(&toStdout, "stdout", false, "write the preset to stdout")
	flags.BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

type presetJSON struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
}

func (a *app) listPresets(asJSON bool) error {
	list := []presetJSON{}
	t := newTable("PRESET", "FOR")
	for _, name := range presets.Names() {
		list = append(list, presetJSON{name, presets.Describe(name)})
		t.add(name, presets.Describe(name))
	}
	if asJSON {
		return writeJSON(a.stdout, struct {
			Presets []presetJSON `json:"presets"`
		}{list})
	}
	return t.write(a.stdout)
}

// init writes a preset to stdout or to the configuration's file.
func (a *app) init(name string, toStdout, asJSON bool) error {
	text, err := presets.Text(name)
	if err != nil {
		return usage("%w%s", err, suggest.DidYouMean(name, presets.Names()))
	}
	if toStdout {
		if _, err := a.stdout.Write(text); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		return nil
	}
	if err := writeNew(a.configPath, text); err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.stdout, struct {
			Preset string `json:"preset"`
			File   string `json:"file"`
		}{name, a.configPath})
	}
	if _, err := fmt.Fprintf(a.stdout, "%s is written: its first lines say what to fill in; then quotactl check\n", a.configPath); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// writeNew writes a file that is not there yet, whole or not at all.
func writeNew(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return usage("%s is there already: write to another file with --config FILE, or see the preset with --stdout", path)
	}
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the configuration: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}
