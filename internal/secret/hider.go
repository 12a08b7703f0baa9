package secret

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// minPart is the shortest searched line of a secret that has several lines, in bytes: a
// bracket alone is not secret.
const minPart = 4

// Hider makes a function that removes secrets from a command's lines: the secret of its
// own credential, and others that it may have. A secret below [Short] characters is removed
// where it is a whole word. A secret of several lines is removed line
// by line. If its own secret is too long to search for, no line is shown. Other secrets
// that are too long are searched in pieces; otherwise no command would have a log.
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
	slices.Sort(parts)
	var all []matcher
	for _, part := range slices.Compact(parts) {
		all = append(all, matchers(part)...)
	}
	return func(text string) string { return hide(text, all) }
}

// hide replaces what the matchers find in a text, each longest stretch of it once.
func hide(text string, all []matcher) string {
	var found [][2]int
	for _, m := range all {
		found = m.find(found, text)
	}
	slices.SortFunc(found, func(a, b [2]int) int { return cmp.Compare(a[0], b[0]) })
	var hidden strings.Builder
	end := 0
	for _, at := range found {
		if at[0] >= end { // else it overlaps the one before, whose mark is written
			hidden.WriteString(text[end:at[0]])
			hidden.WriteString(redactedSecret)
		}
		end = max(end, at[1])
	}
	return hidden.String() + text[end:]
}

// secretLines are the lines of a secret that are searched for.
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

// pieces cuts a secret into pieces, none of them small, that can be searched for.
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
