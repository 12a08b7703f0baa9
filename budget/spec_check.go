package budget

import (
	"errors"
	"fmt"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// validate finds the first error of a spec. A spec from a configuration has none.
func (s *Spec) validate() error {
	if len(s.Limits) == 0 {
		return errors.New("it has no limits")
	}
	if s.Timeout < 0 {
		return fmt.Errorf("a timeout of %s: use 0 or more", s.Timeout)
	}
	for name, cost := range s.Costs {
		if cost.Units < 0 || cost.Units > limit.MaxUnits {
			return fmt.Errorf("operation %s costs %d units: use 0 to %d", name, cost.Units, limit.MaxUnits)
		}
	}
	if s.Unknown.Units < 0 || s.Unknown.Units > limit.MaxUnits {
		return fmt.Errorf("unknown operations cost %d units: use 0 to %d", s.Unknown.Units, limit.MaxUnits)
	}
	names := map[string]bool{}
	for _, l := range s.Limits {
		if !driver.ValidName(l.Name) {
			return fmt.Errorf("limit %q: a name is a letter or digit, then up to 62 letters, digits, dots, underscores and dashes", l.Name)
		}
		if names[l.Name] {
			return fmt.Errorf("limit %q: every limit needs its own name", l.Name)
		}
		names[l.Name] = true
		if err := l.Validate(); err != nil {
			return fmt.Errorf("limit %s: %w", l.Name, err)
		}
	}
	if n := len(limit.Patterns(s.Limits)); n > driver.MaxPatterns {
		return fmt.Errorf("the shares of the limits name %d jobs and patterns: use at most %d; a pattern such as \"tenant.*\" stands for many jobs", n, driver.MaxPatterns)
	}
	return nil
}
