package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/quotactl/quotactl/internal/secret"
)

// MaxLine is how much of a command's output line is logged, in bytes; KeptLine is how
// much is kept to search it for the secret.
const (
	MaxLine  = 8 << 10
	KeptLine = MaxLine + secret.Edge
)

// ReadLines passes on what it reads line by line, until the end: the first part of each
// line, and its length. It treats a closed pipe as the end.
func ReadLines(from io.Reader, line func(kept string, length int)) error {
	read := bufio.NewReader(from)
	var kept []byte
	for {
		kept = kept[:0]
		length := 0
		part, more, err := read.ReadLine()
		for {
			length += len(part)
			kept = append(kept, part[:min(len(part), KeptLine-len(kept))]...)
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

// LineText formats a line, of which only the first part was kept, for the log. It takes
// the secret out before it shortens the line, so that no part of the secret is left at
// the cut.
func LineText(kept string, length int, hide func(string) string) string {
	text := hide(kept)
	if length > len(kept) {
		text = text[:max(0, len(text)-secret.Edge)] // a secret may begin there
	}
	text = PlainText(text)
	if length == len(kept) && len(text) <= MaxLine {
		return text
	}
	end := min(len(text), MaxLine)
	for end > 0 && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + CutMark(length)
}

// CutMark marks the end of a shortened line.
func CutMark(length int) string { return fmt.Sprintf("…(cut, %d bytes)", length) }

// PlainText makes a text safe for a terminal: one line of valid UTF-8, without control
// characters and without characters that change the direction.
func PlainText(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSuffix(text, "\r"), "\uFFFD"))
}
