package budget_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
)

// A refusal says what it is once, with what caused it before what follows.
func TestRefusedErrorText(t *testing.T) {
	full := fmt.Errorf("sqlite store q.db: charge: %w: database or disk is full (13)", budget.ErrUnavailable)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		refused budget.RefusedError
		want    string
	}{
		{
			budget.RefusedError{Operation: "-", Units: 1, Err: budget.ErrExhausted, Limit: "daily", RetryAfter: time.Hour, RetryAt: at},
			"check whether u/k has 1 unit left: exhausted: limit daily has 0 left; fits in 1h0m0s, at 2026-03-01T12:00:00.000000Z",
		},
		{
			budget.RefusedError{Operation: "-", Err: budget.ErrLocked, Limit: "daily", RetryAfter: time.Hour, RetryAt: at},
			"check what u/k has left: limit daily is locked for 1h0m0s, until 2026-03-01T12:00:00.000000Z",
		},
		{
			budget.RefusedError{Units: 1, Err: budget.ErrExhausted, Limit: "daily", Remaining: 0, RetryAfter: time.Hour, RetryAt: at},
			"charge u/k op (1 unit): exhausted: limit daily has 0 left; fits in 1h0m0s, at 2026-03-01T12:00:00.000000Z",
		},
		{
			budget.RefusedError{Units: 2, Err: budget.ErrExhausted, Limit: "daily", Remaining: 1, Cause: errors.New("others wait")},
			"charge u/k op (2 units): exhausted: limit daily has 1 left: others wait",
		},
		{ // guarantees of another limit are in force when it fits this one
			budget.RefusedError{Units: 1, Err: budget.ErrExhausted, Limit: "rolling", RetryAfter: 3 * time.Hour, RetryAt: at, Ends: at.Add(-time.Hour)},
			"charge u/k op (1 unit): exhausted: limit rolling has 0 left; fits in 3h0m0s, at 2026-03-01T12:00:00.000000Z, when no limit's guarantees to others keep it out",
		},
		{
			budget.RefusedError{Units: 1, Err: budget.ErrLocked, Limit: "day", Why: "403", RetryAfter: 3 * time.Hour, RetryAt: at, Ends: at.Add(-time.Hour)},
			"charge u/k op (1 unit): limit day is locked for 2h0m0s, until 2026-03-01T11:00:00.000000Z (403); fits in 3h0m0s, at 2026-03-01T12:00:00.000000Z, when no limit's guarantees to others keep it out",
		},
		{
			budget.RefusedError{Units: 1, Err: budget.ErrNeverFits, Limit: "six", Apart: true},
			"charge u/k op (1 unit): can never fit: the guarantees of limit six and of other limits never lapse together; let them lapse at one time, or put the job in a share",
		},
		{ // the floor alone refuses
			budget.RefusedError{Units: 10, Err: budget.ErrExhausted, Limit: "daily", Remaining: 60, Floor: 55, Kept: []budget.Kept{{Share: "nightly", Units: 50}}},
			"charge u/k op (10 units): exhausted: limit daily has 60 left, and 55 must remain (the call's floor)",
		},
		{ // the share does
			budget.RefusedError{Units: 11, Err: budget.ErrExhausted, Limit: "daily", Remaining: 60, Floor: 5, Kept: []budget.Kept{{Share: "nightly", Units: 50}}},
			"charge u/k op (11 units): exhausted: limit daily has 60 left, and 5 must remain (the call's floor), and 50 are kept for nightly",
		},
		{
			budget.RefusedError{Units: 0, Err: budget.ErrNeverFits, Limit: "daily"},
			"charge u/k op (0 units): can never fit: the units exceed limit daily; raise the limit or ask for fewer units",
		},
		{
			budget.RefusedError{Err: budget.ErrUnknownOperation, Cause: errors.New("price it")},
			"charge u/k op: unknown operation: price it",
		},
		{
			budget.RefusedError{Units: 1, Err: budget.ErrUnavailable, OnStoreError: budget.Open, Cause: full},
			"charge u/k op (1 unit): sqlite store q.db: charge: store out of reach: database or disk is full (13)",
		},
		{
			budget.RefusedError{Units: 1, Err: budget.ErrUnavailable, OnStoreError: budget.Closed, Cause: errors.New("i/o timeout")},
			"charge u/k op (1 unit): store out of reach: i/o timeout; refused because its policy is closed",
		},
		{
			budget.RefusedError{Units: 1, Err: budget.ErrUnavailable},
			"charge u/k op (1 unit): store out of reach; refused because its policy is closed",
		},
		{
			budget.RefusedError{Units: 1, Err: budget.ErrClock, Cause: fmt.Errorf("decide in Redis: %w", budget.ErrClock)},
			"charge u/k op (1 unit): decide in Redis: the clocks disagree; check the store's clock, then accept it: quotactl clock accept u/k",
		},
	} {
		test.refused.Budget = "u/k"
		switch test.refused.Operation {
		case "":
			test.refused.Operation = "op"
		case "-":
			test.refused.Operation = "" // a look
		}
		check.Equal(t, test.refused.Error(), test.want, "error")
	}
}
