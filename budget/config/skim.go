package config

import (
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
)

// ParseFor is [Parse] for a program that only makes charges labelled with a job, or with none
// if job is empty. It does not read the tables of other jobs, and so does not find the errors
// in them: a file with a thousand jobs takes hardly longer than one without.
func ParseFor(path, job string) (*Config, error) {
	text, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	left, jobs := skim(string(text), job)
	root, err := parseText(path, left)
	if err != nil {
		return nil, err
	}
	return readConfig(path, root, slices.DeleteFunc(jobs, func(name string) bool { return name == job })...), nil
}

// skim empties the lines of all tables [job.NAME] and below, except those of one job, and
// returns the names of all such jobs. It leaves a text as it is if that is not plain: a job's
// name that is in quotes or is none, or a line that begins with a bracket and opens no table.
func skim(text, keep string) (left string, jobs []string) {
	heads := tables(text)
	if heads == nil || slices.ContainsFunc(strings.Split(text[:heads[0]], "\n"), beginsWithJob) {
		return text, nil
	}
	var b strings.Builder
	b.WriteString(text[:heads[0]])
	seen := map[string]bool{}
	for i, at := range heads {
		part := text[at:]
		if i+1 < len(heads) {
			part = text[at:heads[i+1]]
		}
		name := jobOf(part)
		if name == "" && beginsWithJob(part) {
			return text, nil
		}
		if name != "" && !seen[name] {
			seen[name] = true
			jobs = append(jobs, name)
		}
		if name == "" || name == keep {
			b.WriteString(part)
			continue
		}
		for range strings.Count(part, "\n") { // so that lines keep their numbers
			b.WriteByte('\n')
		}
	}
	return b.String(), jobs
}

// tables are the places of the lines that open a table; nil if there are none, or if another
// line begins with a bracket: in a string, in an array, or below something that is not closed.
func tables(text string) (heads []int) {
	d := depth{text: text}
	open := 0 // brackets and braces
	for ; ; d.at++ {
		at := min(d.at, len(text))
		for at < len(text) && !opensOrCloses[text[at]] {
			at++
		}
		if d.at = at; at == len(text) {
			break
		}
		switch c := text[at]; c {
		case '"', '\'':
			from := d.at
			d.skipString(c)
			if hasBracketLine(text[from:min(d.at+1, len(text))]) {
				return nil
			}
		case '#':
			d.skipTo("\n")
		case '[':
			if !d.beginsLine() {
				open++
				continue
			}
			if open > 0 {
				return nil
			}
			heads = append(heads, d.at)
			d.skipTo("\n#\"'")
		case '{':
			open++
		case ']', '}':
			open = max(0, open-1) // a head's own was not counted
		}
	}
	if open > 0 {
		return nil
	}
	return heads
}

// opensOrCloses are the characters that matter to tables.
var opensOrCloses = [256]bool{'"': true, '\'': true, '#': true, '[': true, ']': true, '{': true, '}': true}

// hasBracketLine reports whether a line of a string, after the first, begins with a bracket.
func hasBracketLine(text string) bool {
	for {
		_, rest, more := strings.Cut(text, "\n")
		if !more {
			return false
		}
		if strings.HasPrefix(strings.TrimLeft(rest, " \t"), "[") {
			return true
		}
		text = rest
	}
}

// beginsWithJob reports whether a text may begin with a key or a table of the jobs.
func beginsWithJob(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(text, " \t[\"'"), "job")
}

// jobOf is the job's name if a text begins with the head of its table, or of one below it.
func jobOf(text string) string {
	rest, ok := strings.CutPrefix(text, "[job.")
	if !ok {
		return ""
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return !strings.ContainsRune(bareKey, r) })
	if end <= 0 || rest[end] != ']' && rest[end] != '.' || !driver.ValidName(rest[:end]) {
		return ""
	}
	return rest[:end]
}

// bareKey are the characters of a key without quotes.
const bareKey = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
