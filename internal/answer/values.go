package answer

import (
	"encoding/json"
	"strconv"
	"time"
)

// InstantFormat is the layout of an instant in JSON: RFC 3339 in UTC with
// microseconds.
const InstantFormat = "2006-01-02T15:04:05.000000Z"

// Instant is a time in JSON: RFC 3339 in UTC with microseconds, null when zero.
type Instant time.Time

// MarshalJSON implements json.Marshaler.
func (i Instant) MarshalJSON() ([]byte, error) {
	return appendInstant(nil, time.Time(i)), nil
}

// Seconds is a duration in JSON: a decimal number of seconds, exact to the
// microsecond, without a fraction if it is whole.
type Seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return appendSeconds(nil, time.Duration(s)), nil
}

// Text is a string in JSON, null when empty.
type Text string

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	return appendTextOrNull(nil, string(t)), nil
}

// Charges are answered thousands of times a second, so their JSON is appended to a
// buffer, value by value.

func appendInstant(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, InstantFormat)
	return append(b, '"')
}

// appendSeconds uses integers only: a float would lose the last digits of a long
// duration.
func appendSeconds(b []byte, d time.Duration) []byte {
	us := d.Microseconds()
	if us < 0 {
		b, us = append(b, '-'), -us
	}
	b = strconv.AppendInt(b, us/1e6, 10)
	if us%1e6 == 0 {
		return b
	}
	b = append(b, '.')
	for digit := int64(1e5); digit > 0; digit /= 10 {
		b = append(b, byte('0'+us/digit%10))
	}
	return b
}

func appendTextOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return AppendText(b, s)
}

// AppendText appends a JSON string. Plain ASCII is copied; anything else goes through
// encoding/json.
func AppendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // marshalling a string cannot fail
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendNumberOrNull(b []byte, n *int64) []byte {
	if n == nil {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, *n, 10)
}
