package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"

	"github.com/quotactl/quotactl/budget/limit"
)

// Schedule says when a job ticks. Ticks are whole seconds.
//
// A schedule that names hours follows the wall clock of its zone; each time that it names
// is one tick a day. A time that the clock skips ticks at the first instant after the
// gap; several such times, and that instant's own, are one tick. A time that the clock
// shows twice ticks the first time. So a daily schedule ticks once for each date; if a
// zone skipped a whole date, at the first instant after it.
//
// A schedule for every hour ticks whenever the clock shows one of its minutes, also
// across a gap or an overlap.
//
// "@every" counts from the Unix epoch in every zone, so it depends neither on when a
// process was started nor on which process asks.
type Schedule struct {
	spec   string
	zone   *time.Location
	every  time.Duration // of "@every"; else fields is set
	fields wallFields
}

// firstDay is the day on which schedules are tried out: it is fixed, so that a
// configuration is valid or invalid whenever it is read.
var firstDay = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// Parse reads a cron line of five fields, a descriptor such as
// "@daily", or "@every" with a span of whole seconds. The zone is an IANA name.
// The error says what to write instead.
func Parse(spec, zone string) (*Schedule, error) {
	loc, err := LoadZone(zone)
	if err != nil {
		return nil, err
	}
	return ParseIn(spec, loc)
}

// LoadZone reads a zone's rules.
func LoadZone(name string) (*time.Location, error) {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, &ZoneError{name}
	}
	return loc, nil
}

// ParseIn is [Parse] for a zone that was loaded.
func ParseIn(spec string, zone *time.Location) (*Schedule, error) {
	s := &Schedule{spec: spec, zone: zone}
	if strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=") {
		return nil, errors.New("the zone has its own key: take it out and write timezone = \"…\"")
	}
	if spec == "@reboot" {
		return nil, errors.New("@reboot is not a time: start the daemon with --now instead")
	}
	if span, ok := strings.CutPrefix(spec, "@every"); ok {
		var err error
		s.every, err = parseEvery(span)
		return s, err
	}
	fields, err := parseFields(spec)
	if err != nil {
		return nil, err
	}
	s.fields = newWallFields(fields)
	if s.Next(firstDay).IsZero() {
		return nil, errors.New("it never ticks: no such day exists; correct day of month and month")
	}
	return s, nil
}

// ZoneError is an unknown time zone.
type ZoneError struct{ Zone string }

func (e *ZoneError) Error() string {
	return fmt.Sprintf("unknown time zone %q: use an IANA name such as \"America/Los_Angeles\" or \"UTC\"", e.Zone)
}

// parseEvery reads the span of an "@every".
func parseEvery(span string) (time.Duration, error) {
	every, err := limit.ParseSpan(strings.TrimSpace(span))
	if err != nil {
		return 0, fmt.Errorf("%q is not a span of time: write \"@every 90m\"", strings.TrimSpace(span))
	}
	if every < time.Second || every%time.Second != 0 || every > 366*24*time.Hour {
		return 0, fmt.Errorf("@every takes whole seconds, 1s to 8784h, not %s", every)
	}
	return every, nil
}

// parseFields reads a cron line or a descriptor.
func parseFields(spec string) (fields *cron.SpecSchedule, err error) {
	defer func() { // the parser panics on some lines
		if r := recover(); r != nil {
			fields, err = nil, errors.New("it is not a cron line; "+fieldsAdvice)
		}
	}()
	if !strings.HasPrefix(spec, "@") {
		if err := lintFields(spec); err != nil {
			return nil, err
		}
	}
	parsed, err := cron.ParseStandard(spec)
	fields, ok := parsed.(*cron.SpecSchedule)
	switch {
	case err != nil && strings.HasPrefix(spec, "@"): // the parser's own error names no field and gives no advice
		return nil, errors.New("unknown descriptor; " + fieldsAdvice)
	case err != nil || !ok:
		return nil, errors.New("it is not a cron line; " + fieldsAdvice)
	}
	return fields, nil
}

// String is the schedule as it was written.
func (s *Schedule) String() string { return s.spec }

// Zone is its time zone.
func (s *Schedule) Zone() *time.Location { return s.zone }

// IsEvery reports whether the schedule is an "@every".
func (s *Schedule) IsEvery() bool { return s.every > 0 }

// Ticks reports whether there is a tick at the instant, to the second.
func (s *Schedule) Ticks(at time.Time) bool {
	at = at.Truncate(time.Second)
	return s.Next(at.Add(-time.Second)).Equal(at)
}

// Next is the first tick after the instant, in UTC. Every schedule has one, since [Parse]
// refuses schedules without a tick within ten years; for those Next returns the zero
// time.
func (s *Schedule) Next(after time.Time) time.Time {
	const horizon = 3660 * daySeconds // a leap day may be eight years away
	from := after.Unix() + 1
	if s.every > 0 {
		every := int64(s.every / time.Second)
		return time.Unix(ceilDiv(from, every)*every, 0).UTC()
	}
	for span := range s.spans(from, from+horizon) {
		if at, ok := span.first(&s.fields); ok {
			return time.Unix(at, 0).UTC()
		}
	}
	return time.Time{}
}

// LeastGap is the shortest span between two ticks by the clock, ignoring the zone's
// shifts.
func (s *Schedule) LeastGap() time.Duration {
	if s.every > 0 {
		return s.every
	}
	return time.Duration(s.fields.leastGap()) * time.Minute
}
