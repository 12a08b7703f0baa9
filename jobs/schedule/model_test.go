package schedule

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// A model of schedules by definition, slow and sharing nothing with them.
type model struct {
	zone   *time.Location
	fields [5]map[int]bool
	open   [5]bool // the field is '*'
}

var modelBounds = [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}

// newModel reads a line by which value stands in which field.
func newModel(t *testing.T, spec, zone string) *model {
	t.Helper()
	loc := must.Get(time.LoadLocation(zone))(t)
	m := &model{zone: loc}
	for i, field := range strings.Fields(spec) {
		m.fields[i] = map[int]bool{}
		for part := range strings.SplitSeq(field, ",") {
			span, step, hasStep := strings.Cut(part, "/")
			by := 1
			if hasStep {
				by, _ = strconv.Atoi(step)
			}
			low, high := modelBounds[i][0], modelBounds[i][1]
			if first, last, isRange := strings.Cut(span, "-"); span != "*" {
				low = modelValue(i, first)
				if isRange {
					high = modelValue(i, last)
				} else if !hasStep {
					high = low
				}
			}
			m.open[i] = m.open[i] || span == "*" && by == 1
			for n := low; n <= high; n += by {
				m.fields[i][n] = true
			}
		}
	}
	return m
}

func modelValue(field int, text string) int {
	const names = "sun mon tue wed thu fri sat jan feb mar apr may jun jul aug sep oct nov dec"
	if i := slices.Index(strings.Fields(names), text); i >= 7 {
		return i - 6
	} else if i >= 0 {
		return i
	}
	n, _ := strconv.Atoi(text)
	return n
}

// means reports whether the line names a wall-clock minute, given in UTC.
func (m *model) means(wall time.Time) bool {
	dom, dow := m.fields[2][wall.Day()], m.fields[4][int(wall.Weekday())]
	day := dom && dow
	if !m.open[2] && !m.open[4] {
		day = dom || dow
	}
	return day && m.fields[0][wall.Minute()] && m.fields[1][wall.Hour()] && m.fields[3][int(wall.Month())]
}

// ticks are those in [from, until), a span of whole days with a shift of whole
// minutes or none: every minute of it is looked at, and of two days around.
func (m *model) ticks(from, until time.Time) []time.Time {
	const minute, around = 60, 2 * 24 * 60 * 60
	begin, end := from.Unix()-around, until.Unix()+around
	shows := func(at int64) int64 { // the wall clock, as if it were UTC
		_, offset := time.Unix(at, 0).In(m.zone).Zone()
		return at + int64(offset)
	}
	means := func(wall int64) bool { return m.means(time.Unix(wall, 0).UTC()) }
	var all []int64
	if len(m.fields[1]) == 24 {
		for at := begin; at < end; at += minute {
			if means(shows(at)) {
				all = append(all, at)
			}
		}
	} else {
		firsts := map[int64]int64{} // of each wall-clock minute that was shown
		for at := begin; at < end; at += minute {
			if _, again := firsts[shows(at)]; !again {
				firsts[shows(at)] = at
			}
		}
		for wall := shows(begin); wall < shows(end-minute); wall += minute {
			if means(wall) {
				at, shown := firsts[wall]
				for skipped := wall; !shown; at, shown = firsts[skipped] {
					skipped += minute
				}
				all = append(all, at)
			}
		}
	}
	var in []time.Time
	for _, at := range slices.Compact(all) {
		if at >= from.Unix() && at < until.Unix() {
			in = append(in, time.Unix(at, 0).UTC())
		}
	}
	return in
}

// zones are those of the IANA list that differ since 1970.
func zones(t *testing.T) []string {
	t.Helper()
	text := must.Get(os.ReadFile("testdata/zones.txt"))(t)
	return strings.Fields(string(text))
}

// randomSpec is a line that may be refused only because its day never comes.
func randomSpec(random *rand.Rand) string {
	names := map[int][]string{3: strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec"), 4: strings.Fields("sun mon tue wed thu fri sat")}
	value := func(field, n int) string {
		if names[field] != nil && random.IntN(2) == 0 {
			return names[field][n-modelBounds[field][0]]
		}
		return strconv.Itoa(n)
	}
	field := func(i int) string {
		low, high := modelBounds[i][0], modelBounds[i][1]
		if i == 1 && random.IntN(2) == 0 { // most shifts are at night
			high = 4
		}
		var parts []string
		for range 1 + random.IntN(3) {
			a := low + random.IntN(high-low+1)
			b := a + random.IntN(high-a+1)
			switch random.IntN(5) {
			case 0, 1:
				parts = append(parts, value(i, a))
			case 2:
				parts = append(parts, value(i, a)+"-"+value(i, b))
			case 3:
				parts = append(parts, "*/"+strconv.Itoa(1+random.IntN((modelBounds[i][1]-low)/2)))
			default:
				if b > a {
					parts = append(parts, value(i, a)+"-"+value(i, b)+"/"+strconv.Itoa(1+random.IntN(b-a)))
				} else {
					parts = append(parts, value(i, a))
				}
			}
		}
		return strings.Join(parts, ",")
	}
	var fields []string
	for i, open := range []int{6, 4, 2, 2, 2} { // '*' once in so many
		if random.IntN(open) == 0 {
			fields = append(fields, "*")
		} else {
			fields = append(fields, field(i))
		}
	}
	if random.IntN(2) == 0 { // days that come
		fields[2], fields[3], fields[4] = "*", "*", "*"
	}
	return strings.Join(fields, " ")
}

// randomDay is midnight in UTC before a shift of the zone, or of any day.
func randomDay(random *rand.Rand, zone *time.Location) time.Time {
	day := time.Date(1973, time.January, 1+random.IntN(365*65), 0, 0, 0, 0, time.UTC)
	if _, shift := day.In(zone).ZoneBounds(); random.IntN(4) > 0 && !shift.IsZero() {
		day = shift.UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	}
	return day
}

// Schedules tick as the model says, in any zone, over any shift, from wherever
// they are asked.
func TestSchedulesAgreeWithTheModel(t *testing.T) {
	seed := effort.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	list := zones(t)
	compared := 0
	for range 200 {
		spec, zone := randomSpec(random), list[random.IntN(len(list))]
		s, err := Parse(spec, zone)
		if err != nil {
			if strings.Contains(err.Error(), "never ticks") {
				continue
			}
			t.Fatalf("%q: %v", spec, err)
		}
		from := randomDay(random, s.Zone())
		until := from.AddDate(0, 0, 3)
		want := newModel(t, spec, zone).ticks(from, until)
		what := fmt.Sprintf("%q in %s from %s", spec, zone, from)
		at := from.Add(-time.Nanosecond)
		for i := 0; ; i++ {
			next := s.Next(at)
			if i == len(want) {
				if next.Before(until) {
					t.Fatalf("%s: a tick at %s that the model has not", what, next)
				}
				break
			}
			if !next.Equal(want[i]) {
				t.Fatalf("%s: a tick at %s, the model's is at %s", what, next, want[i])
			}
			if u := at.Add(time.Duration(random.Int64N(int64(next.Sub(at))))); !s.Next(u).Equal(next) {
				t.Fatalf("%s: asked at %s the next tick is %s, not %s", what, u, s.Next(u), next)
			}
			at = next
			compared++
		}
		betweenAgrees(t, s, from.Add(time.Duration(random.Int64N(int64(24*time.Hour)))), until.Add(-time.Duration(random.Int64N(int64(24*time.Hour)))), random.IntN(9))
	}
	if compared < 500 {
		t.Errorf("only %d ticks were compared", compared)
	}
}
