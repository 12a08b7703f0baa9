package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/internal/suggest"
)

// shareJob is a job that a share names, other than by a pattern.
type shareJob struct {
	node  Node // jobs of the share
	share string
	name  string
}

// warnShareJobs warns of names in shares that no job table has, if there are job tables.
// Charges with such a label come from elsewhere, or the name is mistyped.
func (c *Config) warnShareJobs() {
	known := c.jobNames()
	if len(known) == 0 {
		return
	}
	for _, u := range c.Upstreams {
		for _, j := range u.shareJobs {
			if !slices.Contains(known, j.name) {
				j.node.Warn("jobs: there is no job %q here, so only charges that something else labels with it belong to share %s%s", j.name, j.share, suggest.DidYouMean(j.name, slices.Clone(known)))
			}
		}
	}
}

// jobNames are those of the job tables.
func (c *Config) jobNames() []string {
	names := slices.Clone(c.unread)
	for _, node := range c.Jobs {
		names = append(names, node.Key())
	}
	return names
}

// MistypedJob says that the job of a charge is probably mistyped: nothing here has the name,
// and it is close to that of a job or of one that a share names. It is empty if not. Jobs
// need no table, so a name that is close to none, or differs in its digits alone, is right.
func (c *Config) MistypedJob(name string) string {
	known := c.jobNames()
	if slices.Contains(known, name) {
		return ""
	}
	var shares []string
	for _, u := range c.Upstreams {
		for _, l := range u.Limits {
			for _, s := range l.Shares {
				if s.Has(name) {
					return ""
				}
				if s.Name == name {
					shares = append(shares, fmt.Sprintf("%s has no job %q: that is the name of a share, whose jobs are %s", c.File, name, strings.Join(s.Jobs, ", ")))
				}
				known = append(known, slices.DeleteFunc(slices.Clone(s.Jobs), func(job string) bool { return strings.HasSuffix(job, "*") })...)
			}
		}
	}
	if len(shares) > 0 {
		return shares[0]
	}
	if slices.ContainsFunc(known, func(job string) bool { return withoutDigits(job) == withoutDigits(name) }) {
		return ""
	}
	meant := suggest.DidYouMean(name, known)
	if name == "" || meant == "" {
		return ""
	}
	return fmt.Sprintf("%s has no job %q, and no share for it%s", c.File, name, meant)
}

func withoutDigits(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, name)
}
