package config

import (
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// maxMaxWait is the longest max_wait of a job.
const maxMaxWait = time.Hour

// readJobs reads the keys of the job tables that concern charges, for each upstream.
// Package jobs validates the tables; errors in these keys are only kept here, for
// programs that load a configuration without its jobs: [Load] returns them.
func (c *Config) readJobs() {
	c.jobSays = map[string]map[string]budget.JobSays{}
	for _, node := range c.Jobs {
		table := node
		beside := *node.doc
		beside.errors, beside.warnings = nil, nil
		node.doc = &beside
		says, upstream := readJobSays(node)
		c.jobFaults = append(c.jobFaults, beside.errors...)
		if says == (budget.JobSays{}) {
			continue
		}
		for _, u := range c.Upstreams {
			here := says
			if says.Floor > 0 && u.Name == upstream {
				u.refuseFloor(table)
			}
			if u.Name != upstream { // the floor counts units of another upstream
				here.Floor = 0
			}
			if c.jobSays[u.Name] == nil {
				c.jobSays[u.Name] = map[string]budget.JobSays{}
			}
			c.jobSays[u.Name][node.Key()] = here
		}
	}
}

// refuseFloor adds an error to a job with a floor that is in a share of one of the
// upstream's limits: a floor leaves units for others, and a share keeps units for the job.
func (u *Upstream) refuseFloor(job Node) {
	for _, l := range u.Limits {
		if i := l.ShareOf(job.Key()); i >= 0 {
			for _, child := range job.children() {
				if child.Key() == "floor" {
					child.Fail("job %s has a floor and is in share %s of limit %s: take one out; a share keeps units for the job, a floor leaves them for others", job.Key(), l.Shares[i].Name, l.Name)
				}
			}
			return
		}
	}
}

// readJobSays reads one job's settings, and the upstream of its budget.
func readJobSays(node Node) (says budget.JobSays, upstream string) {
	if !node.IsTable() {
		return says, ""
	}
	for _, child := range node.children() {
		switch child.Key() {
		case "budget":
			name, _ := child.Text()
			upstream, _, _ = strings.Cut(name, "/")
		case "floor":
			says.Floor, _ = child.Units(0)
		case "on_store_error":
			says.OnStoreError = child.Policy()
		case "max_wait":
			if wait, ok := child.Duration(0, maxMaxWait); ok {
				says.MaxWait = &wait
			}
		}
	}
	return says, upstream
}
