package jobs

import (
	"context"
	"slices"
	"time"
)

// Answer is what has become of a request for a pass.
type Answer struct {
	Waiting bool        // no daemon has begun it
	Active  *ActivePass // it is under way; nil: it is not
	// Record is what became of it; nil: it is not over, or its record is not kept.
	Record *Record
}

// AnswerTo reads what has become of a request that [Trigger] made.
func AnswerTo(ctx context.Context, in State, j *Job, asked Request) (Answer, error) {
	views, err := Look(ctx, in, []*Job{j})
	if err != nil {
		return Answer{}, err
	}
	if slices.ContainsFunc(views[0].Requests, func(r Request) bool { return r.ID == asked.ID }) {
		return Answer{Waiting: true}, nil
	}
	for _, active := range views[0].Active {
		if active.Request == asked.ID {
			return Answer{Active: &active}, nil
		}
	}
	const skew = time.Hour // by which a daemon's clock, which ticks go by, may be behind the store's
	for pass, err := range Past(ctx, in, []string{j.Name}, asked.At.Add(-skew)) {
		if err != nil {
			return Answer{}, err
		}
		if pass.Request == asked.ID {
			return Answer{Record: &pass.Record}, nil
		}
	}
	return Answer{}, nil
}
