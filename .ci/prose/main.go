// Prose fails if a comment, a message or a page of docs uses a phrase of .ci/phrases. Each
// line of that file is a regular expression, a tab, and what to write instead. Sentences
// that run over several lines are joined before they are matched. Run it from the top of
// the tree: go run ./.ci/prose
package main

import (
	"cmp"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// phrase is one line of .ci/phrases.
type phrase struct {
	re      *regexp.Regexp
	instead string
}

// block is text that is matched as one: a paragraph, a comment or a string.
type block struct {
	text   string
	starts []start
}

// start says which line of the file begins at an offset of a block's text.
type start struct{ offset, line int }

func (b *block) add(line int, s string) {
	if b.text != "" {
		b.text += " "
	}
	b.starts = append(b.starts, start{len(b.text), line})
	b.text += strings.Join(strings.Fields(s), " ")
}

func (b *block) line(offset int) int {
	i, found := slices.BinarySearchFunc(b.starts, offset, func(s start, o int) int { return cmp.Compare(s.offset, o) })
	if !found {
		i--
	}
	return b.starts[i].line
}

// hit is a phrase that was found.
type hit struct {
	line          int
	text, instead string
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

func run() error {
	list, err := os.ReadFile(".ci/phrases")
	if err != nil {
		return err
	}
	phrases, err := parse(string(list))
	if err != nil {
		return err
	}
	tracked, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	count := 0
	for name := range strings.SplitSeq(strings.Trim(string(tracked), "\x00"), "\x00") {
		if !isProse(name) {
			continue
		}
		src, err := os.ReadFile(name)
		if os.IsNotExist(err) { // deleted, but not committed
			continue
		} else if err != nil {
			return err
		}
		for _, h := range find(phrases, name, src) {
			fmt.Printf("%s:%d: %q: write %s\n", name, h.line, h.text, h.instead)
			count++
		}
	}
	if count > 0 {
		return fmt.Errorf("%d phrases to rewrite (.ci/phrases)", count)
	}
	return nil
}

func parse(list string) ([]phrase, error) {
	var phrases []phrase
	for i, line := range strings.Split(strings.TrimSuffix(list, "\n"), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		expr, instead, found := strings.Cut(line, "\t")
		re, err := regexp.Compile(expr)
		if err != nil || !found {
			return nil, fmt.Errorf(".ci/phrases:%d: want a regular expression, a tab, and what to write instead: %v", i+1, err)
		}
		phrases = append(phrases, phrase{re, instead})
	}
	return phrases, nil
}

// isProse excludes the known faults, whose context is that of other files, and what others wrote.
func isProse(name string) bool {
	for _, dir := range []string{"testdata/mutants/", "testdata/browser/testdata/", "internal/presets/testdata/", ".ci/phrases", ".ci/prose/main_test.go"} {
		if strings.HasPrefix(name, dir) {
			return false
		}
	}
	switch path.Ext(name) {
	case ".go", ".lua", ".md", ".toml", ".txtar", ".txt", ".html", ".sh", ".yml", ".json", ".js", ".css", ".service":
		return true
	}
	return path.Base(name) == "Makefile" || path.Base(name) == "Containerfile" || strings.HasPrefix(name, ".ci/") && path.Ext(name) == ""
}

func find(phrases []phrase, name string, src []byte) []hit {
	var blocks []block
	switch path.Ext(name) {
	case ".go":
		blocks = goBlocks(src)
	case ".md", ".html":
		blocks = paragraphs(string(src), 1)
	default:
		blocks = lines(string(src))
	}
	var hits []hit
	for _, b := range blocks {
		for _, p := range phrases {
			for _, at := range p.re.FindAllStringIndex(b.text, -1) {
				hits = append(hits, hit{b.line(at[0]), b.text[at[0]:at[1]], p.instead})
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.line, b.line) })
	return hits
}

// goBlocks returns comments and strings. A comment on a line of its own continues the one on the
// line before; a string after a plus continues the one before that.
func goBlocks(src []byte) []block {
	var s scanner.Scanner
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(src))
	s.Init(file, src, nil, scanner.ScanComments)
	var blocks []block
	var before [2]token.Token // the last ones, without comments
	code, comment := 0, 0     // the lines on which the last token and the last comment ended
	for {
		pos, tok, lit := s.Scan()
		line := file.Line(pos)
		switch {
		case tok == token.EOF:
			return blocks
		case tok == token.COMMENT:
			lit, own := strings.TrimPrefix(lit, "//"), code < line
			switch {
			case strings.HasPrefix(lit, "/*"):
				blocks = append(blocks, paragraphs(strings.Trim(lit, "/*"), line)...)
			case own && comment == line-1 && strings.TrimSpace(lit) != "" && len(blocks) > 0:
				blocks[len(blocks)-1].add(line, lit)
				comment = line
			case strings.TrimSpace(lit) != "":
				blocks = append(blocks, block{})
				blocks[len(blocks)-1].add(line, lit)
				comment = line
			}
			continue
		case tok == token.STRING && strings.HasPrefix(lit, "`"):
			blocks = append(blocks, paragraphs(strings.Trim(lit, "`"), line)...)
		case tok == token.STRING:
			if before != [2]token.Token{token.STRING, token.ADD} || len(blocks) == 0 {
				blocks = append(blocks, block{})
			}
			plain, err := strconv.Unquote(lit)
			if err != nil {
				plain = lit
			}
			blocks[len(blocks)-1].add(line, plain)
		}
		if tok != token.SEMICOLON || lit == ";" { // else a newline
			before[0], before[1] = before[1], tok
			code = line + strings.Count(lit, "\n")
		}
	}
}

var (
	fence  = regexp.MustCompile("^\\s*(```|~~~)")
	single = regexp.MustCompile(`^\s*(#|\||<)`)              // a heading, a row of a table, an element
	item   = regexp.MustCompile(`^\s*([-*+]|[0-9]+[.)])\s`)  // begins a paragraph
	remark = regexp.MustCompile(`^\s*(#+|--+|//|/?\*|;)\s*`) // begins a comment
)

// paragraphs joins lines up to an empty one, a heading, an item of a list or a row of a table, and leaves fenced
// code out.
func paragraphs(src string, first int) []block {
	var blocks []block
	open, fenced := false, false
	for i, line := range strings.Split(src, "\n") {
		switch {
		case fence.MatchString(line):
			fenced, open = !fenced, false
		case fenced:
		case strings.TrimSpace(line) == "":
			open = false
		default:
			alone := single.MatchString(line)
			if !open || alone || item.MatchString(line) {
				blocks = append(blocks, block{})
			}
			blocks[len(blocks)-1].add(first+i, line)
			open = !alone
		}
	}
	return blocks
}

// lines joins lines that are comments; others are matched one by one.
func lines(src string) []block {
	var blocks []block
	open := false
	for i, line := range strings.Split(src, "\n") {
		mark := remark.FindString(line)
		rest := strings.TrimPrefix(line, mark)
		if strings.TrimSpace(rest) == "" {
			open = false
			continue
		}
		if !open || mark == "" {
			blocks = append(blocks, block{})
		}
		blocks[len(blocks)-1].add(i+1, rest)
		open = mark != ""
	}
	return blocks
}
