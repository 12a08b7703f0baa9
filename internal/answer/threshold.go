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

// Threshold is what must be left of a budget's tightest limit, in what that counts or in per cent.
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
		return Threshold{text: text, units: units}, nil
	}
	percent, ok := limit.ParseDecimal(number)
	if !ok || percent.Sign() < 0 || percent.Cmp(big.NewRat(100, 1)) > 0 {
		return Threshold{}, errors.New("use 0% to 100%")
	}
	return Threshold{text: text, percent: percent}, nil
}

// ErrNoTightest: no limit of a budget refuses calls.
var ErrNoTightest = errors.New("no limit of it refuses calls")

// Under says that less is left of a budget's tightest limit than the threshold; empty: it is
// not. The error is ErrNoTightest.
func (t Threshold) Under(s budget.Status) (string, error) {
	tightest := s.Tightest()
	switch {
	case !tightest.Refuses():
		return "", ErrNoTightest
	case !t.under(tightest.Left, tightest.Limit.Limit):
		return "", nil
	case tightest.Lock == nil:
		return fmt.Sprintf("%s has %d of %d %s left in limit %s, under %s", s.Budget, tightest.Left, tightest.Limit.Limit, tightest.Counts, tightest.Name, t.of(tightest.Counts)), nil
	}
	what := "it"
	if tightest.Lock.Limit != "" {
		what = "limit " + tightest.Lock.Limit
	}
	return fmt.Sprintf("%s has nothing left, under %s: %s is locked until %s", s.Budget, t.of(tightest.Counts), what, tightest.Lock.Until.UTC().Format(time.RFC3339)), nil
}

// of is the threshold in words, for a limit that counts so.
func (t Threshold) of(what limit.Counts) string {
	switch {
	case t.percent != nil:
		return t.text
	case t.units == 1:
		return t.text + " " + strings.TrimSuffix(string(what), "s")
	}
	return t.text + " " + string(what)
}

func (t Threshold) under(left, of int64) bool {
	if t.percent == nil {
		return left < t.units
	}
	part := new(big.Rat).Mul(big.NewRat(left, 1), big.NewRat(100, 1))
	return part.Cmp(new(big.Rat).Mul(t.percent, big.NewRat(of, 1))) < 0
}
