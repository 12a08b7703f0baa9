package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
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

// What stands in JSON, as package answer defines it for all answers.
type (
	instant = answer.Instant
	seconds = answer.Seconds
	text    = answer.Text
)

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
