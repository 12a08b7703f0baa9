package jobs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/suggest"
)

// fetchKeys are those of a fetch table that are easily put a table too high.
var fetchKeys = []string{"url", "secret", "next_page", "max_pages", "items", "conditional", "output"}

// table reads a job's keys. One that is a fetch's is told to be so.
func table(job config.Node, known ...string) map[string]config.Node {
	if !job.IsTable() {
		return job.Table(known...)
	}
	keys := job.List()
	isCommand := slices.ContainsFunc(keys, func(key config.Node) bool { return key.Key() == "command" })
	for _, key := range keys {
		if !slices.Contains(fetchKeys, key.Key()) {
			continue
		}
		known = append(known, key.Key())
		if isCommand {
			key.Fail("%s is a fetch's: a command does this itself; take it out", key.Key())
			continue
		}
		key.Fail("%s is a fetch's: move it into [job.%s.fetch]", key.Key(), job.Key())
	}
	return job.Table(known...)
}

const commandExample = `write command = ["./fetch.sh", "{region}"]`

// readCommand reads a command's words.
func (j *Job) readCommand(node config.Node) {
	words, ok := node.Texts()
	if !ok {
		return
	}
	if len(words) == 0 || strings.TrimSpace(words[0]) == "" {
		node.Fail("command names no program: %s", commandExample)
		return
	}
	for _, word := range words {
		if strings.ContainsRune(word, 0) {
			node.Fail("command holds a NUL byte, which no program can be given: take it out")
			return
		}
		for _, found := range commandPlaceholder.FindAllString(word, -1) {
			switch found {
			case "{job}", "{region}", "{run}", "{tick}":
			default:
				node.Fail("command holds %s, which stands for nothing: there are {job}, {region}, {run} and {tick}; words that need braces of their own go into a script%s",
					found, suggest.DidYouMean(found, []string{"{job}", "{region}", "{run}", "{tick}"}))
			}
		}
	}
	j.Command = words
}

// commandPlaceholder is what looks like a placeholder; programs have other
// braces in their arguments.
var commandPlaceholder = regexp.MustCompile(`\{[A-Za-z_]+\}`)

// warnCommand notes a program that could not be started now: it may be there by
// the time the job runs. One without a slash is looked up then.
func (j *Job) warnCommand(node config.Node) {
	program := j.Command[0]
	if !strings.Contains(program, "/") || commandPlaceholder.MatchString(program) {
		return
	}
	path := program
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(j.config), path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		node.Warn("command: there is no %s; a program with a slash in its name is looked for from the configuration's folder", program)
	case err != nil:
		node.Warn("command: %s cannot be looked at: %s", program, err)
	case info.IsDir():
		node.Warn("command: %s is a folder", program)
	case info.Mode()&0o111 == 0:
		node.Warn("command: %s may not be run: chmod +x %s", program, program)
	}
}
