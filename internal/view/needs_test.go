package view

import (
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/jobs/needs"
)

// A bound and what is unknown are never shown as a number that is known.
func TestNeeds(t *testing.T) {
	amounts := []needs.Amount{{Operation: "a", Units: 100, Calls: 1}, {Operation: "b", Units: 4, Calls: 4}}
	for source, want := range map[needs.Source]string{
		needs.Configured: "104 configured", needs.Learned: "104 learned", needs.Bound: "at most 104", needs.Unknown: "unknown", "": "unknown",
	} {
		check.Equal(t, Needs(needs.Estimate{Source: source, Amounts: amounts}), want, source)
	}
}
