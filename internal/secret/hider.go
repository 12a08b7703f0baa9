package secret

import (
	"cmp"
	"iter"
	"regexp"
	"slices"
	"strings"
)

// minPart is the shortest line of a secret of several lines that is looked for,
// in bytes: a bracket alone is none.
const minPart = 4

// Hider makes what takes secrets out of a command's lines: its credential's own,
// and others that it may come by. One of several lines is taken out line by line.
// Lines that may hold an own secret too long to be looked for are not shown;
// another such secret is looked for in pieces, as it would leave no command a log.
func Hider(own string, others ...string) func(string) string {
	parts := secretLines(own)
	if slices.ContainsFunc(parts, func(part string) bool { return len(part) > MaxSought }) {
		return func(string) string { return NotShown }
	}
	for _, other := range others {
		for _, part := range secretLines(other) {
			parts = slices.AppendSeq(parts, pieces(part))
		}
	}
	slices.SortFunc(parts, func(a, b string) int { // one that holds another goes first
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	var matchers []*regexp.Regexp
	for _, part := range slices.Compact(parts) {
		matchers = append(matchers, secretMatcher(part))
	}
	return func(text string) string {
		for _, matcher := range matchers {
			text = matcher.ReplaceAllLiteralString(text, redactedSecret)
		}
		return text
	}
}

// secretLines are the lines of a secret that are looked for.
func secretLines(secret string) []string {
	var parts []string
	lines := strings.Split(secret, "\n")
	for _, part := range lines {
		if part = strings.TrimSpace(part); part != "" && (len(lines) == 1 || len(part) >= minPart) {
			parts = append(parts, part)
		}
	}
	return parts
}

// pieces cuts a secret into pieces, none of them small, that can be looked for.
func pieces(secret string) iter.Seq[string] {
	count := (len(secret) + MaxSought - 1) / MaxSought
	size := (len(secret) + count - 1) / count
	return func(yield func(string) bool) {
		for piece := range slices.Chunk([]byte(secret), size) {
			if !yield(string(piece)) {
				return
			}
		}
	}
}
