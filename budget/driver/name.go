package driver

import (
	"fmt"
	"strings"

	"github.com/quotactl/quotactl/budget/limit"
)

// Validate checks the item's names, its units and its lease. The error wraps
// ErrInvalid or ErrTooManyUnits.
func (i Item) Validate() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
	switch {
	case i.Lease < 0 || i.Lease > MaxLease.Microseconds():
		return invalid("a lease of %d µs: use 1µs to %s, or 0 for a plain charge", i.Lease, MaxLease)
	case !ValidName(i.Operation):
		return invalid("operation %q: use letters, digits, '.', '_' and '-', at most 63", i.Operation)
	case !ValidID(i.ID):
		return invalid("id %q: use 1 to 128 printable ASCII characters without spaces", i.ID)
	case i.Units < 0 || i.Units > limit.MaxUnits:
		return fmt.Errorf("%w: %d units: use 0 to %d", ErrTooManyUnits, i.Units, limit.MaxUnits)
	case i.Labels.Job != "" && !ValidName(i.Labels.Job):
		return invalid("job label %q: use letters, digits, '.', '_' and '-', at most 63", i.Labels.Job)
	case i.Labels.Region != "" && !ValidName(i.Labels.Region):
		return invalid("region label %q: use letters, digits, '.', '_' and '-', at most 63", i.Labels.Region)
	case i.Labels.Run != "" && !validRun(i.Labels.Run):
		return invalid("run label %q: use letters, digits and '._:/-', at most 128", i.Labels.Run)
	}
	return nil
}

// ValidName reports whether s can name an upstream, credential, operation, limit, job or
// region: a letter or digit, then up to 62 letters, digits, dots, underscores and dashes.
func ValidName(s string) bool { return len(s) <= 63 && validLabel(s, "._-") }

// validLabel reports whether s is a letter or digit, then letters, digits and characters
// from more.
func validLabel(s, more string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i == 0 || strings.IndexByte(more, c) < 0:
			return false
		}
	}
	return s != ""
}

// validRun reports whether s can be a run's label.
func validRun(s string) bool { return len(s) <= 128 && validLabel(s, "._:/-") }

// ValidID reports whether s is 1 to 128 printable ASCII characters without
// spaces.
func ValidID(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// ValidBudget reports whether s can name a budget: upstream/credential.
func ValidBudget(s string) bool {
	upstream, credential, ok := strings.Cut(s, "/")
	return ok && ValidName(upstream) && ValidName(credential)
}
