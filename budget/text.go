package budget

import (
	"regexp"
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

// variableName is what an environment's variable may be called, capitals what
// one is usually called.
var (
	variableName = regexp.MustCompile(`^[A-Za-z_][0-9A-Za-z_]*$`)
	capitals     = regexp.MustCompile(`^[A-Z_][0-9A-Z_]*$`)
)

// VariableText is the name of an environment's variable as a message may show
// it. One with small letters is not shown: it may be a secret that was written
// where its variable's name belongs, and many keys look like names.
func VariableText(name string) string {
	if capitals.MatchString(name) {
		return name
	}
	return "variable of that name (not shown: it is not in capitals, and may be a secret; write the name of its variable)"
}
