package view

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
)

// The time shown is never before the instant.
func TestShowTime(t *testing.T) {
	second := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)
	for at, want := range map[time.Time]string{
		{}:                                  "-",
		second:                              "2026-12-31 23:59:59Z",
		second.Add(time.Microsecond):        "2027-01-01 00:00:00Z",
		second.In(time.FixedZone("", 3600)): "2026-12-31 23:59:59Z",
	} {
		check.Equal(t, Time(at), want, at, "is shown as")
	}
}
