package answer

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

func TestJSONValues(t *testing.T) {
	zoned := time.Date(2026, 3, 8, 1, 2, 3, 45_678_999, time.FixedZone("", -8*3600))
	for _, c := range []struct {
		value any
		want  string
	}{
		{Instant(zoned), `"2026-03-08T09:02:03.045678Z"`},
		{Instant(time.Unix(0, 0)), `"1970-01-01T00:00:00.000000Z"`},
		{Instant{}, "null"},
		{Seconds(0), "0"},
		{Seconds(time.Microsecond), "0.000001"},
		{Seconds(24 * time.Hour), "86400"},
		{Seconds(24*time.Hour - time.Microsecond), "86399.999999"},
		{Seconds(2_000_000*time.Second + time.Microsecond), "2000000.000001"},
		{Seconds(-1500 * time.Millisecond), "-1.500000"},
		{Text(""), "null"},
		{Text("a"), `"a"`},
	} {
		got := must.Get(json.Marshal(c.value))(t)
		check.Equal(t, string(got), c.want, c.value, "is")
	}
}
