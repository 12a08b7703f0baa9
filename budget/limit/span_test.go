package limit_test

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

func TestParseSpan(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"1d": day, "7d": 7 * day, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "0d": 0, "366d": 366 * day, "1d500ms": day + 500*time.Millisecond,
		"24h": day, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond, "0": 0, "-1d": -day, "-1d12h": -36 * time.Hour, "-5m": -5 * time.Minute, "+2d": 2 * day,
		"106751d": 106751 * day,
	} {
		check.Equal(t, must.Get(limit.ParseSpan(text))(t), want, text)
	}
	for _, text := range []string{
		"", "d", "1", "1 d", "1d ", "1dd", "d1", "1h1d", "1d-2h", "1d+2h", "1d1", "--1d", "1d1d", "1..5d", ".d", "106752d", "106751d24h", "99999999999d", "1D", "7days", "1w", "NaNd", "1e3d",
	} {
		if got, err := limit.ParseSpan(text); err == nil {
			t.Errorf("%q is taken as %s", text, got)
		}
	}
}
