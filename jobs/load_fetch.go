package jobs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/suggest"
)

// fetch reads a [job.NAME.fetch] table. The operation may be in the job's table instead.
func (l *loader) fetch(node config.Node, j *Job, operation string, upstream config.Upstream, known bool) {
	j.Fetch = &Fetch{Operation: operation}
	f := j.Fetch
	t := node.Table("operation", "url", "secret", "next_page", "max_pages", "items", "conditional", "output")
	if own := l.operation(t["operation"], upstream, known); own != "" {
		if operation != "" && operation != own {
			t["operation"].Fail("operation = %q: the job says %q: keep one of them", own, operation)
		}
		f.Operation = own
	}
	if !t["operation"].Exists() && operation == "" {
		node.Fail("job %s: its fetch has no operation: write operation = \"…\", which gives each page its price", j.Name)
	}
	j.readURL(node, t["url"])
	j.readSecret(node, t["secret"], upstream)
	f.readNextPage(t["next_page"])
	if pages, ok := t["max_pages"].Number(1, 1_000_000); ok {
		f.MaxPages = int(pages)
		if !t["next_page"].Exists() && pages > 1 {
			t["max_pages"].Warn("max_pages without next_page: only one page is fetched; say in next_page where the next page's token is")
		}
	}
	if j.Checkpoint > 0 && !t["next_page"].Exists() {
		node.Warn("job %s: checkpoint does nothing without next_page: a run has only one page", j.Name)
	} else if j.Checkpoint > 0 && strings.Contains(f.URL, "{tick}") {
		t["url"].Warn("with checkpoint and {tick} in the url, a resumed run fetches the rest of the earlier tick and nothing of its own tick")
	}
	f.Items, _ = t["items"].JSONPath()
	f.Conditional, _ = t["conditional"].Bool()
	if f.Conditional && strings.Contains(f.URL, "{tick}") {
		t["conditional"].Warn("conditional does nothing with {tick} in the url: each tick fetches another url")
	}
	l.output(node, t["output"], j)
	f.checkQuery(t)
}

// warnRefusals warns, once per upstream, if no rule says how the upstream refuses a call
// when its quota is spent.
func (l *loader) warnRefusals(node config.Node, upstream config.Upstream) {
	if len(upstream.Feedback.Refusals) > 0 || l.unruled[upstream.Name] {
		return
	}
	l.unruled[upstream.Name] = true
	node.Warn("upstream %s has no refusal rule: its response when the quota is spent locks nothing, so every run asks it again; write [upstream.%s.refusal.NAME], with means, status and reset",
		upstream.Name, upstream.Name)
}

func (j *Job) readURL(fetch, node config.Node) {
	if !node.Exists() {
		fetch.Fail("job %s: its fetch has no url: write url = \"https://…\"", j.Name)
		return
	}
	text, ok := node.Text()
	if !ok {
		return
	}
	address, err := url.Parse(placeholder().ReplaceAllString(text, "x"))
	switch {
	case err != nil:
		node.Fail("url cannot be read: write \"https://host/path?query\"")
	case strings.Contains(text, "://") && address.Scheme != "http" && address.Scheme != "https":
		scheme := "another scheme"
		if len(address.Scheme) <= 8 {
			scheme = fmt.Sprintf("%q", address.Scheme+"://")
		}
		node.Fail("url begins with %s: only http:// and https:// are fetched", scheme)
	case address.Scheme != "http" && address.Scheme != "https" || address.Host == "":
		node.Fail("url names no host: begin it with \"https://host/\"")
	case address.User != nil:
		node.Fail("url contains a user: take it out and name the secret in [upstream.NAME.credential.LABEL]")
	case address.Fragment != "":
		node.Fail("url contains a '#': what follows is never sent; take it out")
	default:
		checkPlaceholders(node, text)
		j.Fetch.URL = text
		if len(j.Regions) > 1 && !strings.Contains(text, "{region}") {
			node.Warn("url has no {region}: every region fetches the same")
		}
	}
}

// readSecret reads how the secret is sent: as the fetch says, or else its upstream.
func (j *Job) readSecret(fetch, node config.Node, upstream config.Upstream) {
	inherits := upstream.Secret != config.Secret{}
	lacking := j.Budget != "" && j.credential.SecretEnv == "" && j.credential.SecretFile == ""
	j.Fetch.Secret = node.Secret()
	switch {
	case node.Exists() && inherits:
		node.Fail("secret: upstream %s says how its secret is sent, too: keep one of them", upstream.Name)
	case node.Exists() && node.IsTable() && lacking:
		node.Fail("budget %s has no secret to send: write secret_env = \"NAME\" in [upstream.%s.credential.%s]", j.Budget, j.upstream, j.credential.Label)
	case inherits && lacking:
		fetch.Warn("budget %s has no secret, so this fetch sends none: write secret_env = \"NAME\" in [upstream.%s.credential.%s]", j.Budget, j.upstream, j.credential.Label)
	case inherits:
		j.Fetch.Secret = upstream.Secret
	}
}

func (f *Fetch) readNextPage(node config.Node) {
	if !node.Exists() {
		return
	}
	if !node.IsTable() {
		node.Fail("next_page is not a table: write { param = \"pageToken\", from = \"nextPageToken\" }")
		return
	}
	t := node.Table("param", "from")
	f.NextParam, _ = t["param"].Text()
	f.NextFrom, _ = t["from"].JSONPath()
	if !t["param"].Exists() || !t["from"].Exists() || t["param"].IsText() && f.NextParam == "" {
		node.Fail("next_page lacks param or from: write { param = \"pageToken\", from = \"nextPageToken\" }")
	}
}

func (l *loader) output(fetch, node config.Node, j *Job) {
	if !node.Exists() {
		fetch.Fail("job %s: its fetch has no output: write output = \"data/{job}/{region}/{tick}.ndjson\"", j.Name)
		return
	}
	text, ok := node.Text()
	if !ok {
		return
	}
	checkPlaceholders(node, text)
	if !strings.Contains(text, "{tick}") {
		node.Fail("output = %q has no {tick}: all passes would write to one file; write \"data/{job}/{region}/{tick}.ndjson\"", text)
	}
	if len(j.Regions) > 1 && !strings.Contains(text, "{region}") {
		node.Fail("output = %q has no {region}: all regions would write to one file; write \"data/{job}/{region}/{tick}.ndjson\"", text)
	}
	if strings.HasSuffix(text, "/") || strings.HasSuffix(text, partialSuffix) || filepath.Base(text) == ".." {
		node.Fail("output = %q names no file: write \"data/{job}/{region}/{tick}.ndjson\"; %s is reserved for incomplete files", text, partialSuffix)
	}
	j.Fetch.Output = l.cfg.Path(text)
	for _, region := range j.Regions {
		if _, name := j.outputPlace(time.Time{}, region); !filepath.IsLocal(name) {
			node.Fail("output = %q leads out of the folder before its first placeholder: take .. out", text)
			break
		}
	}
	path := filepath.Clean(strings.ReplaceAll(j.Fetch.Output, "{job}", j.Name))
	if other, taken := l.outputs[path]; taken {
		node.Fail("output = %q is where job %s writes: put {job} into it", text, other)
	}
	l.outputs[path] = j.Name
}

// checkQuery reports a parameter that would be sent twice.
func (f *Fetch) checkQuery(t map[string]config.Node) {
	if f.Secret.Query != "" && f.Secret.Query == f.NextParam {
		t["next_page"].Fail("param %q already carries the secret: one of the two is wrong", f.NextParam)
	}
	address, err := url.Parse(placeholder().ReplaceAllString(f.URL, "x"))
	if err != nil {
		return
	}
	query := address.Query()
	if f.Secret.Query != "" && query.Has(f.Secret.Query) {
		t["url"].Fail("url contains %q, which carries the secret: take it out of the url", f.Secret.Query)
	}
	if f.NextParam != "" && query.Has(f.NextParam) {
		t["url"].Fail("url contains %q, which next_page sends: take it out of the url", f.NextParam)
	}
}

var (
	placeholder = lazily(`\{[^{}]*\}`)
	shortWord   = lazily(`^\{[A-Za-z_]{0,16}\}$`) // others are not shown: a URL may contain a secret
)

// checkPlaceholders reports unknown placeholders.
func checkPlaceholders(node config.Node, text string) {
	for _, found := range placeholder().FindAllString(text, -1) {
		switch found {
		case "{job}", "{region}", "{tick}":
		default:
			if !shortWord().MatchString(found) {
				found = "a placeholder"
			}
			node.Fail("%s contains %s, which is not a placeholder: use {job}, {region} or {tick}; write a literal brace as %%7B or %%7D", node.Key(), found)
		}
	}
}

// lazily compiles a pattern when it is first used, so that no program pays for what it
// does not need.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

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
		path = filepath.Join(filepath.Dir(j.cfg.File), path)
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
