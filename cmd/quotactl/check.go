package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/jobs"
)

func newCheckCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration, all errors at once",
		Long: `Check the configuration and show all of its errors at once, each with its file
and line. Exit code 2 when there are any; warnings alone are exit code 0.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return a.check(asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// check writes what is wrong with the configuration, or what it holds.
func (a *app) check(asJSON bool) error {
	cfg, list, faults, warnings, err := a.findFaults()
	if err != nil {
		return err
	}
	if asJSON {
		answer := struct {
			Errors   []faultJSON `json:"errors"`
			Warnings []faultJSON `json:"warnings"`
		}{toJSON(faults), toJSON(warnings)}
		err = writeJSON(a.stdout, answer)
	} else {
		err = a.writeFaults(faults, warnings)
	}
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return usage("%s has %s", a.configPath, plural(len(faults), "error"))
	}
	if asJSON {
		return nil
	}
	return a.writeSummary(cfg, list)
}

// findFaults reads the configuration for its faults. The error is for a file
// that cannot be read at all.
func (a *app) findFaults() (cfg *budget.Config, list []*jobs.Job, faults, warnings budget.ConfigErrors, err error) {
	cfg, err = budget.ParseConfig(a.configPath)
	if errors.As(err, &faults) {
		return nil, nil, faults, nil, nil
	}
	if err != nil {
		return nil, nil, nil, nil, &exitError{code: exitUsage, err: err}
	}
	list = jobs.Load(cfg)
	if err := cfg.Err(); err != nil && !errors.As(err, &faults) {
		return nil, nil, nil, nil, err
	}
	return cfg, list, faults, cfg.Warnings(), nil
}

// faultJSON is an error or a warning in JSON.
type faultJSON struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

func toJSON(list budget.ConfigErrors) []faultJSON {
	out := make([]faultJSON, len(list))
	for i, e := range list {
		out[i] = faultJSON(e)
	}
	return out
}

func (a *app) writeFaults(faults, warnings budget.ConfigErrors) error {
	var b strings.Builder
	for _, e := range faults {
		b.WriteString(e.Error() + "\n")
	}
	for _, w := range warnings {
		w.Message = "warning: " + w.Message
		b.WriteString(w.Error() + "\n")
	}
	if _, err := fmt.Fprint(a.stdout, b.String()); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// writeSummary shows what a configuration without errors holds.
func (a *app) writeSummary(cfg *budget.Config, list []*jobs.Job) error {
	budgets := newTable("BUDGET", ">LIMITS", ">COSTS", ">JOBS")
	for _, name := range cfg.Budgets() {
		upstream, _, err := cfg.Find(name)
		if err != nil {
			return err
		}
		spenders := 0
		for _, job := range list {
			if job.Budget == name {
				spenders++
			}
		}
		budgets.add(name, number(int64(len(upstream.Limits))), number(int64(len(upstream.Costs))), number(int64(spenders)))
	}
	ticks := newTable("JOB", "BUDGET", "NEXT TICK")
	for _, job := range list {
		ticks.add(job.Name, job.Budget, showTime(job.Next(a.now())))
	}
	out := a.configPath + " is without errors\n\n" + budgets.String()
	if len(list) > 0 {
		out += "\n" + ticks.String()
	}
	if _, err := fmt.Fprint(a.stdout, out); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
