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

// MaxLine is how much of a line that a command prints is logged, in bytes;
// keptLine how much is kept to find the secret in.
const (
	MaxLine  = 8 << 10
	KeptLine = MaxLine + secret.Edge
)

// ReadLines hands on what is read line by line, until its end: the first part of
// each, and its length. A pipe that is closed is an end.
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

// LineText is a line, of which the first part was kept, as it is logged. The
// secret is taken out first, so that no cut leaves a part of it.
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

// CutMark is what stands at the end of a line that was cut.
func CutMark(length int) string { return fmt.Sprintf("…(cut, %d bytes)", length) }

// PlainText is a text that no terminal takes for more: one line of valid UTF-8,
// in its order, without control characters.
func PlainText(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSuffix(text, "\r"), "\uFFFD"))
}
