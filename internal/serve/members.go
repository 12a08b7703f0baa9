package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
)

// object iterates over the members of one JSON object, in their order. Its bytes are
// valid JSON, so it only has to find where each value ends.
type object struct {
	rest []byte
}

// openObject returns the object in a body, or an error that says what the body is
// instead.
func openObject(body []byte) (object, error) {
	if !json.Valid(body) {
		var any json.RawMessage
		return object{}, fmt.Errorf("the body is not JSON: %w", json.Unmarshal(body, &any))
	}
	o := object{body}
	o.blank()
	if o.rest[0] != '{' {
		return object{}, fmt.Errorf("the body is not a JSON object: write {\"budget\": …}")
	}
	o.rest = o.rest[1:]
	return o, nil
}

// next returns the next member: its name without quotes, and its raw value. more is false
// at the end.
func (o *object) next() (name, value []byte, more bool) {
	o.blank()
	if o.rest[0] == ',' {
		o.rest = o.rest[1:]
		o.blank()
	}
	if o.rest[0] == '}' {
		return nil, nil, false
	}
	name = o.cut(stringEnd(o.rest))
	o.blank()
	o.rest = o.rest[1:] // the colon
	o.blank()
	return plain(name), o.cut(valueEnd(o.rest)), true
}

func (o *object) cut(n int) []byte {
	cut := o.rest[:n]
	o.rest = o.rest[n:]
	return cut
}

func (o *object) blank() {
	for len(o.rest) > 0 && (o.rest[0] == ' ' || o.rest[0] == '\t' || o.rest[0] == '\n' || o.rest[0] == '\r') {
		o.rest = o.rest[1:]
	}
}

// stringEnd is the length of the string that b begins with.
func stringEnd(b []byte) int {
	for i := 1; ; i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// valueEnd is the length of the value that b begins with.
func valueEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += stringEnd(b[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(b)
}

// plain decodes a JSON string.
func plain(quoted []byte) []byte {
	for _, c := range quoted {
		if c == '\\' || c >= 0x80 {
			var s string
			_ = json.Unmarshal(quoted, &s) // it is valid
			return []byte(s)
		}
	}
	return quoted[1 : len(quoted)-1]
}

// The functions below read one value each and return what is wrong with it, or "". They
// never get null: request.read skips it.

func textOf(value []byte, to *string) string {
	if value[0] != '"' {
		return "write a string, in quotes"
	}
	if *to = string(plain(value)); *to == "" {
		return "it is empty"
	}
	return ""
}

func flagOf(value []byte, to *bool) string {
	switch value[0] {
	case 't':
		*to = true
	case 'f':
		*to = false
	default:
		return "write true or false"
	}
	return ""
}

func wholeOf(value []byte, to *int64) string {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return "write a whole number, without fraction, exponent or quotes"
	}
	*to = n
	return ""
}

// costOf reads what a call has cost, and rounds a fraction up.
func costOf(value []byte, to *int64) string {
	if strings.IndexByte("-0123456789", value[0]) < 0 {
		return "write a number, without quotes"
	}
	n, err := limit.ParseUnits(string(value))
	if err != nil {
		return fmt.Sprintf("%v: write a number from 0 to %d", err, limit.MaxUnits)
	}
	*to = n
	return ""
}

// spanOf reads a duration in seconds, from least to most.
func spanOf(value []byte, least, most time.Duration, to *time.Duration) string {
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil || strings.IndexByte("-0123456789", value[0]) < 0 || seconds < least.Seconds() || seconds > most.Seconds() {
		return fmt.Sprintf("write a number of seconds from %g to %g", least.Seconds(), most.Seconds())
	}
	*to = time.Duration(math.Round(seconds*1e6)) * time.Microsecond
	return ""
}
