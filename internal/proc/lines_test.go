package proc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/secret"
)

// shown are the lines that stand in the log for an output.
func shown(t *testing.T, output, hidden string, others ...string) []string {
	t.Helper()
	var lines []string
	hide := secret.Hider(hidden, others...)
	must.Do(t, ReadLines(strings.NewReader(output), func(kept string, length int) { lines = append(lines, LineText(kept, length, hide)) }))
	return lines
}

func TestLogLines(t *testing.T) {
	full := strings.Repeat("x", MaxLine)
	for _, test := range []struct {
		name, output string
		want         []string
	}{
		{"nothing", "", nil},
		{"an empty line", "\n", []string{""}},
		{"no end", "a\n\nb", []string{"a", "", "b"}},
		{"another system's end", "a\r\nb\r\n", []string{"a", "b"}},
		{"progress", "1%\r2%\n", []string{"1% 2%"}},
		{"control characters", "a\x00b\x1b[2Jc\td\u0085\n", []string{"a b [2Jc\td "}},
		{"turned about", "a\u202eb\u2028c\n", []string{"a b c"}},
		{"no text", "a\xff\xfeb\n", []string{"a\ufffdb"}},
		{"as long as may be", full + "\ny", []string{full, "y"}},
		{"longer", full + "z\ny", []string{full + fmt.Sprintf("…(cut, %d bytes)", MaxLine+1), "y"}},
		{"longer than is kept", strings.Repeat("x", KeptLine+9) + "\ny", []string{full + fmt.Sprintf("…(cut, %d bytes)", KeptLine+9), "y"}},
		{"cut within a character", full[1:] + "é\n", []string{full[1:] + fmt.Sprintf("…(cut, %d bytes)", MaxLine+1)}},
	} {
		t.Run(test.name, func(t *testing.T) { check.EqualSlices(t, shown(t, test.output, ""), test.want, "lines") })
	}
}

// No cut leaves a part of the secret, wherever it stands.
func TestLogLinesHideTheSecret(t *testing.T) {
	const secret = "0123456789abcdef"
	for _, at := range []int{0, MaxLine - 8, MaxLine, KeptLine - 8, KeptLine} {
		for _, more := range []int{0, 2 * KeptLine} {
			output := strings.Repeat("x", at) + secret + strings.Repeat("x", more)
			for _, line := range shown(t, output, secret) {
				if text, _, _ := strings.Cut(line, "…"); strings.ContainsAny(text, secret[:8]) {
					t.Errorf("at %d of %d bytes: the end of the line is %q", at, len(output), line[max(0, len(line)-60):])
				}
			}
		}
	}
	long := strings.Repeat(secret, 12) // many of them are short once they are hidden
	output := strings.Repeat(long, 3*KeptLine/len(long))
	check.EqualSlices(t, shown(t, output, long), []string{fmt.Sprintf("…(cut, %d bytes)", len(output))}, "lines")
}

// A secret of several lines is hidden line by line, and what cannot be sought is
// not shown at all.
func TestLogLinesHideSecretsOfSeveralLines(t *testing.T) {
	key := "-----BEGIN KEY-----\nMIIEvQIBADAN\n}\n-----END KEY-----"
	check.EqualSlices(t, shown(t, "a MIIEvQIBADAN b\n{}\n", key), []string{"a [secret] b", "{}"}, "lines")
	check.EqualSlices(t, shown(t, "a\nb", strings.Repeat("k", secret.MaxSought+1)), []string{secret.NotShown, secret.NotShown}, "lines")
}

// What a command prints of others' secrets is hidden too: it may come by all of
// them. One of them that is long leaves the lines.
func TestLogLinesHideOthersSecrets(t *testing.T) {
	long := ""
	for len(long) <= 2*secret.MaxSought {
		long += fmt.Sprint(len(long), ".")
	}
	check.EqualSlices(t, shown(t, "own, other and another, "+long+"\nk\n", "own", "other", "another", "", "x\nlines\n", long),
		[]string{"[secret], [secret] and [secret], [secret][secret][secret]", "k"}, "lines")
}
