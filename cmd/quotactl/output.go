package main

import (
	"encoding/json"
	"fmt"
	"io"

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
