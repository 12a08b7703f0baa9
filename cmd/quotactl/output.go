package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/jobs"
)

// writeJSON writes one value and a line's end. What JSON would escape for the
// sake of HTML stays readable.
func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// instant is a time in JSON: RFC 3339 UTC with microseconds, null for none.
type instant time.Time

// MarshalJSON implements json.Marshaler.
func (i instant) MarshalJSON() ([]byte, error) { //nolint:unparam // the interface has the error
	if time.Time(i).IsZero() {
		return []byte("null"), nil
	}
	return []byte(time.Time(i).UTC().Format(`"` + jobs.InstantFormat + `"`)), nil
}

// seconds is a span in JSON: a decimal number of seconds, to the microsecond,
// with a fraction only where there is one.
type seconds time.Duration

// MarshalJSON implements json.Marshaler. The digits are made of integers, as a
// float would lose the last ones of a long span.
func (s seconds) MarshalJSON() ([]byte, error) { //nolint:unparam // the interface has the error
	us := time.Duration(s).Microseconds()
	sign := ""
	if us < 0 {
		sign, us = "-", -us
	}
	if us%1e6 == 0 {
		return fmt.Appendf(nil, "%s%d", sign, us/1e6), nil
	}
	return fmt.Appendf(nil, "%s%d.%06d", sign, us/1e6, us%1e6), nil
}

// text is a string in JSON, null when empty.
type text string

// MarshalJSON implements json.Marshaler.
func (t text) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(t))
}

// showTime is a time for people, in UTC. It is rounded up to a second: what
// comes back at an instant is back at the time shown.
func showTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	whole := t.UTC().Truncate(time.Second)
	if whole.Before(t) {
		whole = whole.Add(time.Second)
	}
	return whole.Format("2006-01-02 15:04:05Z")
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
