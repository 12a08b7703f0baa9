package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// progress writes each run as it ends.
type progress struct {
	out  io.Writer
	on   screen.Screen
	pass string // the heading written last
	err  error  // the first that writing met

	ended, units atomic.Int64
}

// text says how far the passes are.
func (p *progress) text() string {
	return fmt.Sprintf("running: %s ended, %s", view.Plural(int(p.ended.Load()), "run"), view.Plural(int(p.units.Load()), "unit"))
}

func (p *progress) count(run jobs.Run) {
	p.ended.Add(1)
	p.units.Add(run.Units)
}

// run writes one run, under a heading for its pass.
func (p *progress) run(job *jobs.Job, tick time.Time, run jobs.Run) {
	p.count(run)
	var b strings.Builder
	if heading := fmt.Sprintf("%s, pass of %s\n", job.Name, p.on.Time(tick)); heading != p.pass {
		p.pass = heading
		b.WriteString(heading)
	}
	b.WriteString(jobview.Run(p.on, run))
	if err := writeText(p.out, b.String()); p.err == nil {
		p.err = err
	}
}

// summary closes --once: the runs, what is used of the budgets, and under --sandbox what the
// two sides counted, each on its own.
func (a *app) summary(ctx context.Context, passes []jobs.Pass, budgets map[string]*budget.Budget, upstream *upstream) error {
	on := a.screen()
	parts := []string{jobview.Passes(on, passes)}
	used, err := usedText(ctx, on, budgets, passes)
	parts = append(parts, used)
	if upstream != nil {
		parts = append(parts, countTable(on, passes, upstream).String())
	}
	for _, part := range parts {
		if part == "" {
			continue
		}
		if err := writeText(a.stdout, "\n"+part); err != nil {
			return err
		}
	}
	return err
}

// usedText is a line for each limit of the chosen jobs' budgets: what is used
// of it, by whomever.
func usedText(ctx context.Context, on screen.Screen, budgets map[string]*budget.Budget, passes []jobs.Pass) (string, error) {
	if ctx.Err() != nil || len(passes) == 0 {
		return "", nil
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(budgets)) {
		status, err := budgets[name].Status(ctx)
		if err != nil {
			return b.String(), err
		}
		b.WriteString(view.Used(on, status))
	}
	return b.String(), nil
}

// countTable sets what was charged beside what the upstream counted.
func countTable(on screen.Screen, passes []jobs.Pass, upstream *upstream) *table.Table {
	t := on.Table("COUNTED BY", ">UNITS", ">REQUESTS", ">REJECTED")
	units, calls := int64(0), 0
	for _, pass := range passes {
		units += pass.Units
		for _, run := range pass.Runs {
			calls += run.Calls
		}
	}
	t.Add("ledger, this run", on.Number(units), fmt.Sprint(calls), "-")
	now, day := upstream.counted(), upstream.Usage()
	t.Add("sandbox, this run", on.Number(now.Units), on.Number(now.Requests), on.Number(now.Rejected))
	t.Add("sandbox, today", on.Number(day.Units), on.Number(day.Requests), on.Number(day.Rejected))
	return t
}
