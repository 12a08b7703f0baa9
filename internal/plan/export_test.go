package plan

import (
	"time"

	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// SetTakes has runs take something else than their needs; nil: their needs.
func (q *Question) SetTakes(takes func(j *jobs.Job, region string, tick time.Time) []needs.Amount) {
	q.takes = takes
}
