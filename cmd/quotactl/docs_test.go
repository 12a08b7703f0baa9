package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/spf13/cobra"
)

// block is a block of code in a document. The words after its fence are its
// language and what the tests are to do with it; indented ones have none.
type block struct {
	info []string
	text string
}

// documents are the texts for people, by their path from the repository's top.
func documents(t *testing.T) map[string]string {
	t.Helper()
	top := filepath.Join("..", "..")
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		paths := must.Get(filepath.Glob(filepath.Join(top, filepath.FromSlash(pattern))))(t)
		for _, path := range paths {
			text := must.Get(os.ReadFile(path))(t)
			name := must.Get(filepath.Rel(top, path))(t)
			all[filepath.ToSlash(name)] = string(text)
		}
	}
	if len(all) < 6 {
		t.Fatalf("%d documents, want all of them", len(all))
	}
	return all
}

// split parts a document into its blocks of code and its prose.
func split(document string) (blocks []block, prose string) {
	var words strings.Builder
	var fenced *block
	indented := false
	for line := range strings.Lines(document) {
		switch info, fence := strings.CutPrefix(line, "```"); {
		case fence && fenced == nil:
			fenced = &block{info: strings.Fields(info)}
		case fence:
			blocks, fenced = append(blocks, *fenced), nil
		case fenced != nil:
			fenced.text += line
		case strings.HasPrefix(line, "    "):
			if !indented {
				blocks = append(blocks, block{})
			}
			blocks[len(blocks)-1].text += line[4:]
			indented = true
			continue
		default:
			words.WriteString(line)
		}
		indented = false
	}
	return blocks, words.String()
}

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// Every link of a document to a file or a heading of the repository leads there.
func TestDocumentLinks(t *testing.T) {
	all := documents(t)
	for name, text := range all {
		_, prose := split(text)
		for _, found := range linkPattern.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			path, heading, _ := strings.Cut(found[1], "#")
			target := name
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), path))
			}
			check.NoError(t, check.Err(os.Stat(filepath.Join("..", "..", target))), name, "links to", found[1])
			if heading != "" && !hasHeading(all[target], heading) {
				t.Errorf("%s links to %s: there is no such heading", name, found[1])
			}
		}
	}
}

// hasHeading looks for a heading by the name that a link has for it.
func hasHeading(document, anchor string) bool {
	_, prose := split(document)
	for _, heading := range headingPattern.FindAllStringSubmatch(prose, -1) {
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, heading[1])
		if slug == anchor {
			return true
		}
	}
	return false
}

var (
	commandPattern = regexp.MustCompile(`(?m)(?:^|[|&;(']|\b(?:do|if|then)) *(?:go run \./cmd/quotactl|quotactl) ([a-z-][^\n|&;)<>#]*)`)
	spanPattern    = regexp.MustCompile("`quotactl ([a-z-][^`|&;)<>]*)`")
	wordPattern    = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
)

// Every command line of a document is one that the program takes. In prose it
// may leave its arguments out.
func TestDocumentCommands(t *testing.T) {
	seen := 0
	for name, text := range documents(t) {
		blocks, prose := split(text)
		for _, b := range blocks {
			if len(b.info) > 0 && b.info[0] != "sh" {
				continue
			}
			for _, found := range commandPattern.FindAllStringSubmatch(b.text, -1) {
				seen++
				line := strings.TrimSuffix(found[1], " 2") // of 2>&1
				check.NoError(t, parses(line, true), name, "quotactl", line)
			}
		}
		for _, found := range spanPattern.FindAllStringSubmatch(prose, -1) {
			seen++
			check.NoError(t, parses(found[1], false), name, "quotactl", found[1])
		}
	}
	if seen < 30 {
		t.Errorf("%d command lines found", seen)
	}
	for _, wrong := range []string{"charg youtube/key1 search.list", "charge youtube/key1 search.list --unit 3", "charge youtube/key1", "settle a/b id 1 2"} {
		if parses(wrong, true) == nil {
			t.Errorf("quotactl %s: taken", wrong)
		}
	}
}

// parses tells why the program would not take a command line.
func parses(line string, arguments bool) error {
	root := newRootCommand(&app{env: noEnv, now: time.Now})
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	root.InitDefaultCompletionCmd(line)
	var words []string
	for _, word := range wordPattern.FindAllString(line, -1) {
		word = strings.Trim(word, `'"[]`)
		if strings.HasPrefix(word, "$") {
			word = "1" // a variable, where a number may be asked for
		}
		words = append(words, word)
	}
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if !arguments && cmd != root {
		return nil
	}
	return validArguments(cmd)
}

func validArguments(cmd *cobra.Command) error {
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}
