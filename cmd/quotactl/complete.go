package main

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/jobs"
)

// What a shell completes is read from the configuration; one that cannot be
// read completes nothing.

// completeBudget completes a first argument that is a budget.
func (a *app) completeBudget(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	cfg, _ := a.completing(cmd)
	if cfg == nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return cfg.Budgets(), cobra.ShellCompDirectiveNoFileComp
}

// completeCall completes a budget and then one of its operations.
func (a *app) completeCall(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	cfg, _ := a.completing(cmd)
	if cfg == nil || len(args) != 1 {
		return a.completeBudget(cmd, args, typed)
	}
	upstream, _, err := cfg.Find(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(upstream.Costs)), cobra.ShellCompDirectiveNoFileComp
}

// completeJob completes the names of jobs.
func (a *app) completeJob(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	_, list := a.completing(cmd)
	var names []string
	for _, job := range list {
		if !slices.Contains(args, job.Name) {
			names = append(names, job.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeOneJob completes a first argument that is a job.
func (a *app) completeOneJob(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeJob(cmd, args, typed)
}

// completeRegion completes the regions of the job that is named, or of all.
func (a *app) completeRegion(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	_, list := a.completing(cmd)
	var regions []string
	for _, job := range list {
		if len(args) == 0 || slices.Contains(args, job.Name) {
			regions = append(regions, job.Regions...)
		}
	}
	slices.Sort(regions)
	regions = slices.DeleteFunc(slices.Compact(regions), func(region string) bool { return region == "" })
	return regions, cobra.ShellCompDirectiveNoFileComp
}

// completing reads the configuration for a shell.
func (a *app) completing(cmd *cobra.Command) (*config.Config, []*jobs.Job) {
	if a.resolve(cmd.Flags()) != nil {
		return nil, nil
	}
	cfg, list, err := a.loadConfig()
	if err != nil {
		return nil, nil
	}
	return cfg, list
}
