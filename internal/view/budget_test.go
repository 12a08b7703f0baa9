package view

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
)

// A share's line says what is guaranteed, until when, and what of it there is.
func TestShareText(t *testing.T) {
	at := time.Date(2026, 11, 25, 5, 0, 0, 0, time.UTC)
	share := func(guarantee, inForce, used, kept, borrowed int64, lapses bool) budget.ShareStatus {
		s := budget.ShareStatus{Share: limit.Share{Name: "nightly", Guarantee: guarantee}, InForce: inForce, Used: used, Kept: kept, Borrowed: borrowed}
		if lapses {
			s.Lapse, s.LapsesAt = 1, at
		}
		return s
	}
	for _, c := range []struct {
		share budget.ShareStatus
		left  int64
		want  string
	}{
		{share(60, 60, 10, 50, 0, false), 90, "share nightly is guaranteed 60: 10 used, 50 kept, 0 borrowed"},
		{share(60, 60, 10, 50, 0, true), 90, "share nightly is guaranteed 60: 10 used, 50 kept, 0 borrowed; lapses at 2026-11-25 05:00:00Z"},
		{share(60, 0, 10, 0, 10, true), 90, "share nightly was guaranteed 60 until 2026-11-25 05:00:00Z, when that lapsed: 10 used, 0 kept"},
		{share(60, 60, 0, 60, 0, false), 20, "share nightly is guaranteed 60: 0 used, 60 kept, 0 borrowed; only 20 are left of what is kept"},
		{share(60, 30, 0, 30, 0, false), 50, "share nightly is guaranteed 30: 0 used, 30 kept, 0 borrowed; the limit is too low for its 60"},
	} {
		check.Equal(t, shareText(c.share, c.left), c.want, "text")
	}
}
