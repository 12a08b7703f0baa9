package budget

import (
	"errors"
	"fmt"
)

// validate finds what a spec written by hand may have wrong; one read from a
// configuration has it right.
func (s *Spec) validate() error {
	if len(s.Limits) == 0 {
		return errors.New("it has no limits")
	}
	if s.Timeout < 0 {
		return fmt.Errorf("a timeout of %s: use 0 or more", s.Timeout)
	}
	for name, cost := range s.Costs {
		if cost.Units < 0 || cost.Units > MaxUnits {
			return fmt.Errorf("operation %s costs %d units: use 0 to %d", name, cost.Units, MaxUnits)
		}
	}
	if s.Unknown.Units < 0 || s.Unknown.Units > MaxUnits {
		return fmt.Errorf("unknown operations cost %d units: use 0 to %d", s.Unknown.Units, MaxUnits)
	}
	names := map[string]bool{}
	for _, l := range s.Limits {
		if l.Name == "" || names[l.Name] {
			return fmt.Errorf("limit %q: each needs a name of its own", l.Name)
		}
		names[l.Name] = true
		if err := l.validate(); err != nil {
			return fmt.Errorf("limit %s: %w", l.Name, err)
		}
	}
	return nil
}

func (l Limit) validate() error {
	for what, n := range map[string]int64{"limit": l.Limit, "quota": l.Quota, "headroom": l.Headroom, "outage part": l.OutagePart} {
		if n < 0 || n > MaxUnits {
			return fmt.Errorf("a %s of %d: use 0 to %d", what, n, MaxUnits)
		}
	}
	switch {
	case l.Quota > 0 && l.Limit > l.Quota:
		return fmt.Errorf("it stands at %d, above its quota of %d", l.Limit, l.Quota)
	case l.Counts != CountUnits && l.Counts != CountCalls:
		return fmt.Errorf("it counts %q: use CountUnits or CountCalls", l.Counts)
	case l.Window.Kind == Concurrent && l.Counts != CountCalls:
		return errors.New("it counts open reservations: use CountCalls")
	}
	if err := l.Window.validate(); err != nil || l.Window.Kind != Bucket {
		return err
	}
	return l.checkBucket()
}
