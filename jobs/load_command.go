package jobs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/suggest"
)

// fetchKeys are keys of a fetch table that users easily put one table too high.
var fetchKeys = []string{"url", "secret", "next_page", "max_pages", "items", "conditional", "output"}

// table reads a job's keys. It reports keys that belong to a fetch.
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
			key.Fail("%s belongs to a fetch: a command does this itself; take it out", key.Key())
			continue
		}
		key.Fail("%s belongs to a fetch: move it into [job.%s.fetch]", key.Key(), job.Key())
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
			node.Fail("command contains a NUL byte, which cannot be passed to a program: take it out")
			return
		}
		for _, found := range commandPlaceholder().FindAllString(word, -1) {
			switch found {
			case "{job}", "{region}", "{run}", "{tick}":
			default:
				node.Fail("command contains %s, which is not a placeholder: use {job}, {region}, {run} or {tick}; put words with literal braces into a script%s",
					found, suggest.DidYouMean(found, []string{"{job}", "{region}", "{run}", "{tick}"}))
			}
		}
	}
	j.Command = words
}

// commandPlaceholder matches what looks like a placeholder; programs have other braces in
// their arguments.
var commandPlaceholder = lazily(`\{[A-Za-z_]+\}`)

// warnCommand warns about a program that could not be started now; it may exist by the
// time the job runs. A program without a slash is looked up then.
func (j *Job) warnCommand(node config.Node) {
	program := j.Command[0]
	if !strings.Contains(program, "/") || commandPlaceholder().MatchString(program) {
		return
	}
	path := program
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(j.config), path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		node.Warn("command: %s does not exist; a program with a slash in its name is resolved from the configuration's folder", program)
	case err != nil:
		node.Warn("command: %s cannot be checked: %s", program, err)
	case info.IsDir():
		node.Warn("command: %s is a folder", program)
	case info.Mode()&0o111 == 0:
		node.Warn("command: %s is not executable: chmod +x %s", program, program)
	}
}
