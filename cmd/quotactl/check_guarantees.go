package main

import (
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// guarantee is what a job, or a pattern of jobs, is guaranteed of a limit.
type guarantee struct {
	Jobs   string          `json:"jobs"` // a name or "prefix.*"
	Budget string          `json:"budget"`
	Share  answer.Text     `json:"share"` // null: the job has none, and takes what nobody is guaranteed
	Limit  string          `json:"limit"`
	Units  int64           `json:"units"` // in what the limit counts
	Lapse  *answer.Seconds `json:"lapse_seconds,omitempty"`
	ByPlan bool            `json:"lapse_by_plan,omitempty"`
}

// guarantees lists what each job of a divided budget is guaranteed: first the configured
// jobs, then the patterns of shares that are for none of these.
func guarantees(cfg *config.Config, configured []*jobs.Job) (list []guarantee) {
	named := cfg.Budgets()
	for _, name := range budgetsToCheck(cfg) {
		upstream, anyLabel := upstreamOf(cfg, name)
		var own []string
		for _, job := range configured {
			if job.Budget == name || anyLabel && !slices.Contains(named, job.Budget) && strings.HasPrefix(job.Budget, upstream.Name+"/") {
				own = append(own, job.Name)
			}
		}
		for _, l := range upstream.Limits {
			if len(l.Shares) == 0 {
				continue
			}
			for _, job := range own {
				list = append(list, guaranteeOf(job, name, l, l.ShareOf(job)))
			}
			for i, share := range l.Shares {
				for _, pattern := range share.Jobs {
					if !slices.ContainsFunc(own, func(job string) bool { return limit.MatchOperation(pattern, job) }) {
						list = append(list, guaranteeOf(pattern, name, l, i))
					}
				}
			}
		}
	}
	return list
}

// budgetsToCheck are the names of all budgets in the order of the file. A credential "*"
// stands for those that it admits.
func budgetsToCheck(cfg *config.Config) (names []string) {
	for _, u := range cfg.Upstreams {
		for _, credential := range u.Credentials {
			names = append(names, u.Name+"/"+credential.Label)
		}
	}
	return names
}

// upstreamOf is the upstream of one of budgetsToCheck, and whether its credential is "*".
func upstreamOf(cfg *config.Config, name string) (u config.Upstream, anyLabel bool) {
	at := slices.IndexFunc(cfg.Upstreams, func(u config.Upstream) bool { return strings.HasPrefix(name, u.Name+"/") })
	return cfg.Upstreams[at], strings.HasSuffix(name, "/"+config.AnyCredential)
}

// guaranteeOf is what the share with an index guarantees a job; −1: it has none.
func guaranteeOf(job, budget string, l limit.Limit, share int) guarantee {
	g := guarantee{Jobs: job, Budget: budget, Limit: l.Name}
	if share >= 0 {
		s := l.Shares[share]
		g.Share, g.Units, g.ByPlan = answer.Text(s.Name), s.Guarantee, s.Plan
		if s.Lapse > 0 {
			lapse := answer.Seconds(time.Duration(s.Lapse) * time.Microsecond)
			g.Lapse = &lapse
		}
	}
	return g
}

func guaranteeTable(list []guarantee) *table.Table {
	t := table.New("GUARANTEED TO", "BUDGET", "SHARE", "LIMIT", ">UNITS", "UNTIL")
	for _, g := range list {
		share, until := string(g.Share), "always"
		switch {
		case share == "":
			share, until = "-", "-"
		case g.ByPlan:
			until = "its jobs need no more"
		case g.Lapse != nil:
			until = limit.SpanText(time.Duration(*g.Lapse)) + " before the reset"
		}
		if together := slices.ContainsFunc(list, func(other guarantee) bool {
			return other.Jobs != g.Jobs && share != "-" && other.Budget == g.Budget && other.Limit == g.Limit && other.Share == g.Share
		}); together {
			until += ", for the whole share"
		}
		t.Add(g.Jobs, g.Budget, share, g.Limit, view.Number(g.Units), until)
	}
	return t
}
