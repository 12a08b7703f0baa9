package budget

import (
	"strings"
	"time"
)

// SpanText is a span of time as a configuration writes it, without trailing
// zeroes: 24h, not 24h0m0s.
func SpanText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
