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
	for _, b := range Budgets(cfg, configured) {
		for _, l := range b.Upstream.Limits {
			if len(l.Shares) == 0 {
				continue
			}
			for _, job := range b.Jobs {
				list = append(list, guaranteeOf(job, b.Name, l, l.ShareOf(job)))
			}
			for i, share := range l.Shares {
				for _, pattern := range share.Jobs {
					if !slices.ContainsFunc(b.Jobs, func(job string) bool { return limit.MatchOperation(pattern, job) }) {
						list = append(list, guaranteeOf(pattern, b.Name, l, i))
					}
				}
			}
		}
	}
	return list
}

// ConfiguredBudget is a credential's budget in a configuration.
type ConfiguredBudget struct {
	Name     string // upstream/* for all that a credential "*" admits
	Upstream config.Upstream
	Jobs     []string // those that spend it
}

// Budgets lists the budgets of a configuration in the order of the file.
func Budgets(cfg *config.Config, configured []*jobs.Job) (list []ConfiguredBudget) {
	named := cfg.Budgets()
	for _, u := range cfg.Upstreams {
		for _, credential := range u.Credentials {
			b := ConfiguredBudget{Name: u.Name + "/" + credential.Label, Upstream: u}
			anyLabel := credential.Label == config.AnyCredential
			for _, job := range configured {
				if job.Budget == b.Name || anyLabel && !slices.Contains(named, job.Budget) && strings.HasPrefix(job.Budget, u.Name+"/") {
					b.Jobs = append(b.Jobs, job.Name)
				}
			}
			list = append(list, b)
		}
	}
	return list
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
