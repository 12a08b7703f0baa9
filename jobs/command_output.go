package jobs

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLine is how much of a line that a command prints is logged, in bytes;
// keptLine how much is kept to find the secret in.
const (
	maxLine  = 8 << 10
	keptLine = maxLine + edge
)

// readLines hands on what is read line by line, until its end: the first part of
// each, and its length. A pipe that is closed is an end.
func readLines(from io.Reader, line func(kept string, length int)) error {
	read := bufio.NewReader(from)
	var kept []byte
	for {
		kept = kept[:0]
		length := 0
		part, more, err := read.ReadLine()
		for {
			length += len(part)
			kept = append(kept, part[:min(len(part), keptLine-len(kept))]...)
			if !more || err != nil {
				break
			}
			part, more, err = read.ReadLine()
		}
		if length > 0 || err == nil {
			line(string(kept), length)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, fs.ErrClosed):
			return nil
		case err != nil:
			return err
		}
	}
}

// lineText is a line, of which the first part was kept, as it is logged. The
// secret is taken out first, so that no cut leaves a part of it.
func lineText(kept string, length int, hide func(string) string) string {
	text := hide(kept)
	if length > len(kept) {
		text = text[:max(0, len(text)-edge)] // a secret may begin there
	}
	text = plainText(text)
	if length == len(kept) && len(text) <= maxLine {
		return text
	}
	end := min(len(text), maxLine)
	for end > 0 && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + cutMark(length)
}

// cutMark is what stands at the end of a line that was cut.
func cutMark(length int) string { return fmt.Sprintf("…(cut, %d bytes)", length) }

// plainText is a text that no terminal takes for more: one line of valid UTF-8,
// in its order, without control characters.
func plainText(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSuffix(text, "\r"), "\uFFFD"))
}

// minPart is the shortest line of a secret of several lines that is looked for,
// in bytes: a bracket alone is none.
const minPart = 4

// hider makes what takes secrets out of a command's lines: its credential's own,
// and others that it may come by. One of several lines is taken out line by line.
// Lines that may hold an own secret too long to be looked for are not shown;
// another such secret is looked for in pieces, as it would leave no command a log.
func hider(own string, others ...string) func(string) string {
	parts := secretLines(own)
	if slices.ContainsFunc(parts, func(part string) bool { return len(part) > maxSought }) {
		return func(string) string { return notShown }
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
	count := (len(secret) + maxSought - 1) / maxSought
	size := (len(secret) + count - 1) / count
	return func(yield func(string) bool) {
		for piece := range slices.Chunk([]byte(secret), size) {
			if !yield(string(piece)) {
				return
			}
		}
	}
}
