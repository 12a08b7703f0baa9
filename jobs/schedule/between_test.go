package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

func TestBetween(t *testing.T) {
	for _, test := range []struct {
		name, spec, zone, after, until string
		most, count                    int
		first                          string
		newest                         []string
	}{
		{"none", "0 3 * * *", "UTC", "2026-06-01T03:00:00Z", "2026-06-02T02:59:59.999Z", 9, 0, "", nil},
		{"the end is in", "0 3 * * *", "UTC", "2026-06-01T03:00:00Z", "2026-06-02T03:00:00Z", 9, 1, "2026-06-02T03:00:00Z", []string{"2026-06-02T03:00:00Z"}},
		{"the start is out", "0 3 * * *", "UTC", "2026-06-01T03:00:00.5Z", "2026-06-01T03:00:00.7Z", 9, 0, "", nil},
		{"just before", "0 3 * * *", "UTC", "2026-06-01T02:59:59.999999999Z", "2026-06-01T03:00:00Z", 9, 1, "2026-06-01T03:00:00Z", []string{"2026-06-01T03:00:00Z"}},
		{"backwards", "* * * * *", "UTC", "2026-06-02T00:00:00Z", "2026-06-01T00:00:00Z", 9, 0, "", nil},
		{"the newest", "0 */6 * * *", "UTC", "2026-06-01T00:00:00Z", "2026-06-03T00:00:00Z", 3, 8, "2026-06-01T06:00:00Z",
			[]string{"2026-06-02T12:00:00Z", "2026-06-02T18:00:00Z", "2026-06-03T00:00:00Z"}},
		{"none of the newest", "0 */6 * * *", "UTC", "2026-06-01T00:00:00Z", "2026-06-03T00:00:00Z", 0, 8, "2026-06-01T06:00:00Z", nil},
		{"a year of minutes", "* * * * *", "America/New_York", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", 1, 365 * 24 * 60, "2026-01-01T00:01:00Z", []string{"2027-01-01T00:00:00Z"}},
		{"a year of working hours", "*/5 9-16 * * 1-5", "America/New_York", "2026-01-01T05:00:00Z", "2027-01-01T05:00:00Z", 0, 261 * 8 * 12, "2026-01-01T14:00:00Z", nil},
		{"leap days", "0 0 29 2 *", "UTC", "1970-01-01T00:00:00Z", "2070-01-01T00:00:00Z", 2, 25, "1972-02-29T00:00:00Z", []string{"2064-02-29T00:00:00Z", "2068-02-29T00:00:00Z"}},
		{"every", "@every 7h", "UTC", "1970-01-01T00:00:00Z", "1970-01-02T04:00:00Z", 2, 4, "1970-01-01T07:00:00Z", []string{"1970-01-01T21:00:00Z", "1970-01-02T04:00:00Z"}},
		{"every, none", "@every 7h", "UTC", "1970-01-01T00:00:00Z", "1970-01-01T06:59:59Z", 2, 0, "", nil},
		{"every second of a century", "@every 1s", "UTC", "1970-01-01T00:00:00Z", "2070-01-01T00:00:00Z", 1, 36525 * daySeconds, "1970-01-01T00:00:01Z", []string{"2070-01-01T00:00:00Z"}},
		{"before the epoch", "@every 7h", "UTC", "1969-12-31T16:00:00Z", "1970-01-01T00:00:00Z", 9, 2, "1969-12-31T17:00:00Z", []string{"1969-12-31T17:00:00Z", "1970-01-01T00:00:00Z"}},
		// 2026-03-08, Los Angeles: 02:00 to 03:00 is skipped, at 10:00 UTC.
		{"a tick at the end of a gap", "*/20 2 * * *", "America/Los_Angeles", "2026-03-08T00:00:00Z", "2026-03-09T09:00:00Z", 9, 2,
			"2026-03-08T10:00:00Z", []string{"2026-03-08T10:00:00Z", "2026-03-09T09:00:00Z"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := schedule(t, test.spec, test.zone)
			count, first, newest := s.Between(instant(t, test.after), instant(t, test.until), test.most)
			var got []string
			for _, at := range newest {
				got = append(got, at.Format(time.RFC3339Nano))
			}
			check.Equal(t, count, test.count, "ticks")
			if (test.first == "") != first.IsZero() || test.first != "" && !first.Equal(instant(t, test.first)) {
				t.Errorf("first is %s, want %q", first, test.first)
			}
			check.EqualSlices(t, got, test.newest, "newest")
		})
	}
}

func schedule(t *testing.T, spec, zone string) *Schedule {
	t.Helper()
	return must.Get(Parse(spec, zone))(t)
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	return must.Get(time.Parse(time.RFC3339, text))(t)
}

// Between gives what repeated Next gives, wherever it begins and ends.
func TestBetweenAgreesWithNext(t *testing.T) {
	seed := effort.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	specs := []string{"*/7 * * * *", "0 * * * *", "*/10 1-3 * * *", "30 2 * * *", "0 0 1,15 * 5", "5 23 31 * *", "@every 7h", "@every 31m"}
	zones := []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Antarctica/Troll"}
	for range 300 {
		s := schedule(t, specs[random.IntN(len(specs))], zones[random.IntN(len(zones))])
		after := time.Unix(random.Int64N(3e9), random.Int64N(1e9))
		until := after.Add(time.Duration(random.Int64N(int64(20 * 24 * time.Hour))))
		betweenAgrees(t, s, after, until, random.IntN(40))
	}
}

// betweenAgrees holds Between against repeated Next.
func betweenAgrees(t *testing.T, s *Schedule, after, until time.Time, most int) {
	t.Helper()
	var want []time.Time
	for at := s.Next(after); !at.IsZero() && !at.After(until); at = s.Next(at) {
		if len(want) > 0 && !at.After(want[len(want)-1]) {
			t.Fatalf("%q in %s: after %s comes %s", s, s.Zone(), want[len(want)-1], at)
		}
		want = append(want, at)
	}
	count, first, newest := s.Between(after, until, most)
	var wantFirst time.Time
	if len(want) > 0 {
		wantFirst = want[0]
	}
	if count != len(want) || !first.Equal(wantFirst) || !slices.Equal(newest, want[max(0, len(want)-most):]) {
		t.Fatalf("%q in %s between %s and %s, at most %d: %d ticks, the first %s, the newest %v; Next gives %v",
			s, s.Zone(), after, until, most, count, first, newest, want)
	}
}
