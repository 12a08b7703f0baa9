package config

import (
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/feedback"
)

// warnRefusals warns of rules that never apply, because an earlier rule matches every
// response that they match; nodes are the tables of the upstream's refusals.
func warnRefusals(u *Upstream, nodes []Node) {
	rules := u.Feedback.Refusals
	for i, rule := range rules {
		for _, earlier := range rules[:i] {
			if fitsAllOf(earlier.Condition, rule.Condition) {
				nodes[i].Warn("refusal %s never applies: the earlier refusal %s matches every response that it matches; move it up, or take it out", rule.Name, earlier.Name)
				break
			}
		}
	}
}

// fitsAllOf reports whether c certainly matches every response that other matches.
func fitsAllOf(c, other feedback.Condition) bool {
	if len(c.Operations) > 0 && !slices.Equal(c.Operations, other.Operations) {
		return false
	}
	if len(c.Status) > 0 && (len(other.Status) == 0 || !subset(other.Status, c.Status)) {
		return false
	}
	if !holdsAllOf(lowerAll(c.Header), lowerAll(other.Header)) || !holdsAllOf(c.JSON, other.JSON) {
		return false
	}
	return len(c.Text) == 0 || len(other.Text) > 0 && !slices.ContainsFunc(other.Text, func(text string) bool {
		return !slices.ContainsFunc(c.Text, func(part string) bool {
			return strings.Contains(strings.ToLower(text), strings.ToLower(part))
		})
	})
}

// holdsAllOf reports whether a response with the values of other always has those of c.
func holdsAllOf(c, other map[string][]string) bool {
	for key, values := range c {
		theirs, ok := other[key]
		if !ok || !slices.Contains(values, "*") && !subset(theirs, values) {
			return false
		}
	}
	return true
}

// lowerAll is the map with keys and values in lower case.
func lowerAll(m map[string][]string) map[string][]string {
	low := make(map[string][]string, len(m))
	for key, values := range m {
		for _, value := range values {
			low[strings.ToLower(key)] = append(low[strings.ToLower(key)], strings.ToLower(value))
		}
	}
	return low
}

func subset[T comparable](part, whole []T) bool {
	return !slices.ContainsFunc(part, func(x T) bool { return !slices.Contains(whole, x) })
}
