// Prose fails if a comment, a message or a page of docs uses a phrase of .ci/phrases. It joins the
// lines of a paragraph, a comment or a string before it matches them.
package main

import (
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// phrase is a line of .ci/phrases.
type phrase struct {
	*regexp.Regexp
	instead, example string
}

// block is a paragraph, a comment or a string, joined to one line.
type block struct {
	text  string
	lines []begin // of the file
}

type begin struct{ offset, line int }

func main() {
	log.SetFlags(0)
	phrases, err := readPhrases(".ci/phrases")
	if err != nil {
		log.Fatal(err)
	}
	tracked, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate").Output()
	if err != nil {
		log.Fatal("git ls-files: ", err)
	}
	found := false
	for _, name := range strings.Split(string(tracked), "\x00") {
		if !texts.MatchString(name) || except.MatchString(name) {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // one that was just deleted is still tracked
			log.Fatal(err)
		}
		for _, hit := range find(phrases, name, src) {
			_, _ = fmt.Fprintln(os.Stdout, hit)
			found = true
		}
	}
	if found {
		os.Exit(1)
	}
}

func readPhrases(name string) ([]phrase, error) {
	list, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var phrases []phrase
	for i, line := range strings.Split(string(list), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, "\t")
		re, err := regexp.Compile(fields[0])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s:%d: write a regular expression, what to write instead, and an example, separated by tabs", name, i+1)
		}
		phrases = append(phrases, phrase{re, fields[1], fields[2]})
	}
	return phrases, nil
}

var (
	texts  = regexp.MustCompile(`\.(go|lua|md|toml|txtar|txt|html|js|css|json|sh|yml|service)$|(^|/)(Makefile|Containerfile)$|^\.ci/[a-z]+$`)
	except = regexp.MustCompile(`^(testdata/mutants|testdata/browser/testdata|internal/presets/testdata)/|^\.ci/phrases$`) // others' text, and known faults' context
)

// find returns the phrases of a file, by line.
func find(phrases []phrase, name string, src []byte) []string {
	var blocks []block
	switch path.Ext(name) {
	case ".go":
		blocks = goBlocks(src)
	case ".md", ".html":
		blocks = paragraphs(string(src), 1)
	default:
		blocks = comments(string(src))
	}
	var hits []string
	for _, b := range blocks {
		if !strings.Contains(b.text, " ") {
			continue
		}
		for _, p := range phrases {
			for _, at := range p.FindAllStringIndex(b.text, -1) {
				hits = append(hits, fmt.Sprintf("%s:%d: %q: write %s", name, b.line(at[0]), b.text[at[0]:at[1]], p.instead))
			}
		}
	}
	return hits
}

// goBlocks returns comments and strings. A comment on a line of its own continues the comment on
// the line before, a string after a plus the one before that.
func goBlocks(src []byte) []block {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(src))
	s.Init(file, src, nil, scanner.ScanComments)
	var blocks []block
	var last, before token.Token // without comments
	code, comment := 0, 0        // the lines of the last token and the last comment
	for {
		pos, tok, lit := s.Scan()
		line := file.Line(pos)
		switch {
		case tok == token.EOF:
			return blocks
		case tok == token.COMMENT:
			if text := strings.Trim(lit, "/* \t"); text != "" {
				blocks = join(blocks, comment == line-1 && code < line, text, line)
				comment = line
			}
			continue
		case tok == token.STRING && lit[0] == '`':
			blocks = append(blocks, paragraphs(strings.Trim(lit, "`"), line)...)
		case tok == token.STRING:
			text, _ := strconv.Unquote(lit)
			blocks = join(blocks, last == token.ADD && before == token.STRING, text, line)
		}
		before, last, code = last, tok, line
	}
}

var (
	fence = regexp.MustCompile("^\\s*```")
	item  = regexp.MustCompile(`^\s*([-*+]|[0-9]+\.)\s`)
	alone = regexp.MustCompile(`^\s*[#|<]`) // a heading, a row of a table, an element
	mark  = regexp.MustCompile(`^\s*(#+|--|//|/?\*+|;)(\s|$)`)
)

// paragraphs joins lines up to an empty one, and leaves fenced code out.
func paragraphs(src string, first int) []block {
	var blocks []block
	open, fenced := false, false
	for i, line := range strings.Split(src, "\n") {
		if fence.MatchString(line) {
			fenced, open = !fenced, false
		} else if !fenced {
			single := alone.MatchString(line)
			blocks = join(blocks, open && !single && !item.MatchString(line), line, first+i)
			open = !single && strings.TrimSpace(line) != ""
		}
	}
	return blocks
}

// comments joins the lines of a comment; the others are blocks of their own.
func comments(src string) []block {
	var blocks []block
	open := false
	for i, line := range strings.Split(src, "\n") {
		begins := mark.FindString(line)
		text := strings.TrimSpace(line[len(begins):])
		blocks = join(blocks, open && begins != "", text, i+1)
		open = begins != "" && text != ""
	}
	return blocks
}

// join adds a line to the last block, or begins a block with it.
func join(blocks []block, continues bool, text string, line int) []block {
	if !continues || len(blocks) == 0 {
		blocks = append(blocks, block{})
	}
	b := &blocks[len(blocks)-1]
	if b.text != "" {
		b.text += " "
	}
	b.lines = append(b.lines, begin{len(b.text), line})
	b.text += strings.Join(strings.Fields(text), " ")
	return blocks
}

// line is the line of the file from which a byte of the text is.
func (b block) line(offset int) int {
	i := sort.Search(len(b.lines), func(i int) bool { return b.lines[i].offset > offset })
	return b.lines[i-1].line
}
