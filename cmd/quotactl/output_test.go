package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/view"
)

func TestJSONValues(t *testing.T) {
	zoned := time.Date(2026, 3, 8, 1, 2, 3, 45_678_999, time.FixedZone("", -8*3600))
	for _, c := range []struct {
		value any
		want  string
	}{
		{instant(zoned), `"2026-03-08T09:02:03.045678Z"`},
		{instant(time.Unix(0, 0)), `"1970-01-01T00:00:00.000000Z"`},
		{instant{}, "null"},
		{seconds(0), "0"},
		{seconds(time.Microsecond), "0.000001"},
		{seconds(24 * time.Hour), "86400"},
		{seconds(24*time.Hour - time.Microsecond), "86399.999999"},
		{seconds(2_000_000*time.Second + time.Microsecond), "2000000.000001"},
		{seconds(-1500 * time.Millisecond), "-1.500000"},
		{text(""), "null"},
		{text("a"), `"a"`},
	} {
		got := must.Get(json.Marshal(c.value))(t)
		check.Equal(t, string(got), c.want, c.value, "is")
	}
}

// The time shown is never before the instant.
func TestShowTime(t *testing.T) {
	second := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)
	for at, want := range map[time.Time]string{
		{}:                                  "-",
		second:                              "2026-12-31 23:59:59Z",
		second.Add(time.Microsecond):        "2027-01-01 00:00:00Z",
		second.In(time.FixedZone("", 3600)): "2026-12-31 23:59:59Z",
	} {
		check.Equal(t, view.Time(at), want, at, "is shown as")
	}
}
