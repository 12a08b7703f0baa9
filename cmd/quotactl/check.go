package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/secret"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

func newCheckCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration",
		Long: `Check the configuration and report every error at once, each with its file and
line. Exit code 2 if there are errors, 0 if there are only warnings. If the file
is not valid TOML (a missing quote), only the first such line is reported.`,
		Example: `  quotactl check
  quotactl check -c team/costs.toml --json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return a.check(asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// check writes what is wrong with the configuration, or what it holds.
func (a *app) check(asJSON bool) error {
	cfg, list, faults, err := a.findFaults()
	if err != nil {
		return err
	}
	var warnings config.Errors
	if cfg != nil { // it is TOML
		warnings = append(cfg.Warnings(), cfg.MissingSecrets(a.env, secret.Short)...)
		slices.SortStableFunc(warnings, func(a, b config.Error) int { return a.Line - b.Line })
	}
	if asJSON {
		err = writeJSON(a.stdout, answer.NewCheck(cfg, list, faults, warnings))
	} else {
		err = a.writeFaults(faults, warnings)
	}
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		where := a.configPath
		if last := faults[len(faults)-1].File; last != where {
			where += " with " + last
		}
		return usage("%s has %s", where, view.Plural(len(faults), "error"))
	}
	if asJSON {
		return nil
	}
	return a.writeSummary(cfg, list, warnings)
}

// findFaults reads the configuration for its faults, and the store's URL given
// beside it. The error is for a file that cannot be read at all.
func (a *app) findFaults() (cfg *config.Config, list []*jobs.Job, faults config.Errors, err error) {
	cfg, list, err = a.loadConfig()
	if err != nil && !errors.As(err, &faults) {
		return nil, nil, nil, err
	}
	if a.storeURL == "" {
		return cfg, list, faults, nil
	}
	if err := open.Check(a.storeURL); err != nil {
		from := "QUOTACTL_STORE"
		if a.storeFlag {
			from = "--store"
		}
		message := strings.TrimPrefix(err.Error(), budget.ErrStoreConfig.Error()+": ")
		faults = append(faults, config.Error{File: from, Message: message})
	}
	return cfg, list, faults, nil
}

func (a *app) writeFaults(faults, warnings config.Errors) error {
	var b strings.Builder
	line := func(e config.Error, paint func(string) string, says string) {
		on, text := a.screen(), e.Error()
		if !on.Terminal {
			b.WriteString(text + "\n")
			return
		}
		place := strings.TrimSuffix(text, e.Message)
		b.WriteString(on.Wrap("", place+paint(says)) + on.Wrap("    ", strings.TrimPrefix(e.Message, says)))
	}
	for _, e := range faults {
		line(e, a.screen().Bad, "")
	}
	for _, w := range warnings {
		w.Message = "warning: " + w.Message
		line(w, a.screen().Warn, "warning: ")
	}
	return writeText(a.stdout, b.String())
}

// writeSummary shows what a configuration without errors holds.
func (a *app) writeSummary(cfg *config.Config, list []*jobs.Job, warnings config.Errors) error {
	budgets := a.screen().Table("BUDGET", ">LIMITS", ">COSTS", ">JOBS")
	headrooms, automatic := view.NewHeadroomTable(a.screen()), false
	for _, b := range answer.Budgets(cfg, list) {
		automatic = view.AddHeadrooms(a.screen(), headrooms, b.Name, b.Upstream.Limits) || automatic
		budgets.Add(b.Name, a.screen().Number(int64(len(b.Upstream.Limits))), a.screen().Number(int64(len(b.Upstream.Costs))), a.screen().Number(int64(len(b.Jobs))))
	}
	ticks := a.screen().Table("JOB", "BUDGET", "NEXT TICK", "STAGGER")
	for _, job := range list {
		ticks.Add(job.Name, job.Budget, a.screen().Time(job.Next(a.now())), staggerText(job))
	}
	verdict := " is OK"
	if n := len(warnings); n > 0 && a.screen().Terminal {
		verdict += ", with " + view.Plural(n, "warning")
	}
	out := a.configPath + verdict + "\n\n" + budgets.String()
	if len(list) > 0 {
		out += "\n" + ticks.String()
	}
	if kept := answer.Guarantees(cfg, list); len(kept) > 0 {
		out += "\n" + view.Guarantees(a.screen(), kept).String()
	}
	if automatic {
		out += "\n" + headrooms.String()
	}
	return writeText(a.stdout, out)
}

// staggerText is the span over which the regions of a pass start, and how far
// apart they do.
func staggerText(job *jobs.Job) string {
	if job.Stagger == 0 || len(job.Regions) < 2 {
		return "-"
	}
	return fmt.Sprintf("%s, one every %s", limit.SpanText(job.Stagger), limit.SpanText(job.Every().Round(time.Millisecond)))
}
