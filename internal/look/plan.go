package look

import (
	"context"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/plan"
)

// Answer answers a question. With advise, which loads the configuration with a setting, it
// looks for advice where a pass lacks units.
func Answer(ctx context.Context, question *plan.Question, advise func(set string) (*plan.Question, error)) (*answer.Plan, error) {
	lived, err := question.Plan(ctx)
	if err != nil {
		return nil, err
	}
	high, err := highPlan(ctx, question)
	if err != nil {
		return nil, err
	}
	var advice *plan.Advice
	if advise != nil {
		if advice, err = question.Advise(ctx, lived, advise); err != nil {
			return nil, err
		}
	}
	says := answer.NewPlan(question, lived, high, advice, advise != nil)
	return &says, nil
}
