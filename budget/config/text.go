package config

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// variableName matches a valid name of an environment variable, capitals a usual one.
var (
	variableName = lazily(`^[A-Za-z_][0-9A-Za-z_]*$`)
	capitals     = lazily(`^[A-Z_][0-9A-Z_]*$`)
)

// VariableText is the name of an environment variable as a message may show it. A name
// with lower-case letters is not shown: it may be a secret that was written in the
// variable's place, because many keys look like names.
func VariableText(name string) string {
	if capitals().MatchString(name) {
		return name
	}
	return "variable of that name (not shown: it is not in capitals, and may be a secret; write the name of its variable)"
}

// lazily compiles a pattern when it is first used, so that no program pays for what it
// does not need.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

func quoteList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	if len(quoted) < 2 {
		return strings.Join(quoted, "")
	}
	return strings.Join(quoted[:len(quoted)-1], ", ") + " or " + quoted[len(quoted)-1]
}
