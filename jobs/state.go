package jobs

import "github.com/quotactl/quotactl/budget"

// State keeps what jobs need between their passes: the overlap mark, the
// newest ticks, the region to begin with and the last record. Every store is
// one.
type State = budget.JobStore
