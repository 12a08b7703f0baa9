package answer

import (
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs"
)

// Guarantee is what a job, or a pattern of jobs, is guaranteed of a limit.
type Guarantee struct {
	Jobs   string   `json:"jobs"` // a name or "prefix.*"
	Budget string   `json:"budget"`
	Share  Text     `json:"share"` // null: the job has none, and takes what nobody is guaranteed
	Limit  string   `json:"limit"`
	Units  int64    `json:"units"` // in what the limit counts
	Lapse  *Seconds `json:"lapse_seconds,omitempty"`
	ByPlan bool     `json:"lapse_by_plan,omitempty"`
}

// Guarantees lists what each job of a divided budget is guaranteed: first the configured
// jobs, then the patterns of shares that are for none of these.
func Guarantees(cfg *config.Config, configured []*jobs.Job) (list []Guarantee) {
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
func guaranteeOf(job, budget string, l limit.Limit, share int) Guarantee {
	g := Guarantee{Jobs: job, Budget: budget, Limit: l.Name}
	if share >= 0 {
		s := l.Shares[share]
		g.Share, g.Units, g.ByPlan = Text(s.Name), s.Guarantee, s.Plan
		if s.Lapse > 0 {
			lapse := Seconds(time.Duration(s.Lapse) * time.Microsecond)
			g.Lapse = &lapse
		}
	}
	return g
}
