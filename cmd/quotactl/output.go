package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
)

// writeJSON writes one value and a newline, without escapes for HTML.
func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// writeText writes an answer for people.
func writeText(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// The types of values in JSON, as package answer defines them for all answers.
type (
	instant = answer.Instant
	seconds = answer.Seconds
	text    = answer.Text
)

// showTime is a time for people, in UTC, rounded up to a second: what returns at an
// instant has returned at the time shown.
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
