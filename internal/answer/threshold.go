package answer

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
)

// Threshold is what must be left of a budget, in units or in per cent of its tightest limit.
// The zero value is under nothing.
type Threshold struct {
	text    string
	units   int64
	percent *big.Rat // nil: units
}

// ParseThreshold reads "10%", from 0 to 100, or a number of units, 0 to limit.MaxUnits. The
// error says what to write.
func ParseThreshold(text string) (Threshold, error) {
	number, isPercent := strings.CutSuffix(text, "%")
	if !isPercent {
		units, err := limit.ParseUnits(text)
		if err != nil {
			return Threshold{}, fmt.Errorf("%w: use units such as 500, or a part of the limit such as 10%%", err)
		}
		what := " units"
		if units == 1 {
			what = " unit"
		}
		return Threshold{text: text + what, units: units}, nil
	}
	percent, ok := limit.ParseDecimal(number)
	if !ok || percent.Sign() < 0 || percent.Cmp(big.NewRat(100, 1)) > 0 {
		return Threshold{}, errors.New("use 0% to 100%")
	}
	return Threshold{text: text, percent: percent}, nil
}

// ErrNoTightest: no limit of a budget refuses calls, counts units and covers every operation.
var ErrNoTightest = errors.New("it has no enforced limit that counts units and covers every operation")

// Under says that less is left of a budget than the threshold; empty: it is not. It judges by
// the limit that has the least left of those that refuse calls, count units and cover every
// operation. Where all calls are refused by a lock, nothing is left. The error is
// ErrNoTightest.
func (t Threshold) Under(s budget.Status) (string, error) {
	tightest := s.Tightest()
	lock, locked := closed(s)
	switch {
	case locked && t.under(0, 1):
		return fmt.Sprintf("%s has nothing left, under %s: %s", s.Budget, t.text, lock), nil
	case tightest == nil && !locked:
		return "", ErrNoTightest
	case !locked && t.under(tightest.Remaining, tightest.Limit.Limit):
		return fmt.Sprintf("%s has %d of %d units left in limit %s, under %s", s.Budget, tightest.Remaining, tightest.Limit.Limit, tightest.Name, t.text), nil
	}
	return "", nil
}

func (t Threshold) under(left, of int64) bool {
	if t.percent == nil {
		return left < t.units
	}
	part := new(big.Rat).Mul(big.NewRat(left, 1), big.NewRat(100, 1))
	return part.Cmp(new(big.Rat).Mul(t.percent, big.NewRat(of, 1))) < 0
}

// closed says which lock refuses all calls of a budget.
func closed(s budget.Status) (text string, locked bool) {
	until := func(what string, l budget.Lock) string {
		return what + " is locked until " + l.Until.UTC().Format(time.RFC3339)
	}
	if lock, locked := s.LockOf(""); locked {
		return until("it", lock), true
	}
	for _, l := range s.Limits {
		if lock, locked := s.LockOf(l.Name); locked && l.CoversAll() && !l.Observe && l.Window.Kind != limit.Concurrent {
			return until("limit "+l.Name, lock), true
		}
	}
	return "", false
}
