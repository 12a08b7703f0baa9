package jobs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"regexp"
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

// logLines logs what is read line by line, until its end. A longer line is cut
// and marked with its length. hide takes the secret out.
func logLines(from io.Reader, log *slog.Logger, hide func(string) string) {
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
			log.Info("output", "line", lineText(string(kept), length, hide))
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, fs.ErrClosed) {
				log.Debug("output ended", "error", err)
			}
			return
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
	return fmt.Sprintf("%s…(cut, %d bytes)", text[:end], length)
}

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

// hider makes what takes a secret out of a command's lines. A secret of several
// lines is taken out line by line.
func hider(secret string) func(string) string {
	parts := strings.Split(secret, "\n")
	var matchers []*regexp.Regexp
	for _, part := range parts {
		part = strings.TrimSpace(part)
		switch {
		case len(part) > maxSought:
			return func(string) string { return notShown }
		case part == "" || len(parts) > 1 && len(part) < minPart:
		default:
			matchers = append(matchers, secretMatcher(part))
		}
	}
	return func(text string) string {
		for _, matcher := range matchers {
			text = matcher.ReplaceAllLiteralString(text, redactedSecret)
		}
		return text
	}
}
