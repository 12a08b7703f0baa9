package jobs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode"
)

// maxLine is how much of a line that a command prints is logged, in bytes.
const maxLine = 8 << 10

// logLines logs what is read line by line, until its end. A longer line is cut
// and marked; control characters stand as spaces. show takes out what must not be
// shown.
func logLines(from io.Reader, log *slog.Logger, show func(string) string) {
	read := bufio.NewReaderSize(from, maxLine)
	for {
		line, more, err := read.ReadLine()
		text, cut := string(line), 0
		for more && err == nil {
			line, more, err = read.ReadLine()
			cut += len(line)
		}
		if text != "" || cut > 0 || err == nil {
			text = show(plainText(text))
			if cut > 0 {
				text += fmt.Sprintf(" (cut, %d bytes more)", cut)
			}
			log.Info("output", "line", text)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				log.Debug("output ended", "error", err)
			}
			return
		}
	}
}

// plainText is a text that no terminal takes for more.
func plainText(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSuffix(text, "\r"), "\uFFFD"))
}
