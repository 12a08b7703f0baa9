package draft

import (
	"os"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Paths of real APIs become what testdata/paths says. Names stay, for a preset or a person to
// fold.
func TestFold(t *testing.T) {
	t.Parallel()
	text := string(must.Get(os.ReadFile("testdata/paths"))(t))
	n := 0
	for line := range strings.Lines(text) {
		sent, want, isPath := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(line, "/") || !isPath {
			continue
		}
		n++
		want = strings.TrimSpace(want)
		if want == "=" {
			want = sent
		}
		check.Equal(t, Fold(sent, nil), want, sent)
	}
	check.Equal(t, n > 90, true, n, "paths")
}

// A part with a secret in it is folded, however plain it looks, and however it is escaped.
func TestFoldHidesSecrets(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		"/hooks/correct-horse/run":   "/hooks/{id}/run",
		"/hooks/xcorrect-horsey":     "/hooks/{id}",
		"/hooks/correct%2Dhorse/run": "/hooks/{id}/run",
		"/hooks/horse/run":           "/hooks/horse/run",
	} {
		check.Equal(t, Fold(sent, []string{"correct-horse"}), want, sent)
	}
}
