package config

import "regexp"

// variableName matches a valid name of an environment variable, capitals a usual one.
var (
	variableName = regexp.MustCompile(`^[A-Za-z_][0-9A-Za-z_]*$`)
	capitals     = regexp.MustCompile(`^[A-Z_][0-9A-Z_]*$`)
)

// VariableText is the name of an environment variable as a message may show it. A name
// with lower-case letters is not shown: it may be a secret that was written in the
// variable's place, because many keys look like names.
func VariableText(name string) string {
	if capitals.MatchString(name) {
		return name
	}
	return "variable of that name (not shown: it is not in capitals, and may be a secret; write the name of its variable)"
}
