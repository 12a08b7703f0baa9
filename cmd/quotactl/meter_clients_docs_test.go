package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// clientsPage is the document whose table TestMeteredClients makes.
var clientsPage = filepath.Join("..", "..", "docs", "meter-clients.md")

// inDocs holds the page's rows to the clients that were run, but for their versions, which are
// those of the machine. With -update and full effort it writes the table.
func (k *clientKit) inDocs(t *testing.T) {
	t.Helper()
	page := string(must.Get(os.ReadFile(clientsPage))(t))
	text, was, _ := strings.Cut(page, "| client |")
	table, whole := k.table(t)
	if *update && whole {
		must.Do(t, os.WriteFile(clientsPage, []byte(text+table), 0o600))
		return
	}
	known := withoutVersions("| client |" + was)
	check.Equal(t, strings.Count(known, "\n"), len(clients)+2, "lines of the table of docs/meter-clients.md")
	for row := range strings.Lines(withoutVersions(table)) {
		check.Contains(t, known, row, "the table of docs/meter-clients.md; -update with full effort writes it")
	}
}

// table is that of the clients that were run, and whether these are all.
func (k *clientKit) table(t *testing.T) (text string, whole bool) {
	t.Helper()
	var table strings.Builder
	table.WriteString("| client | version | without hooks | refused for good | refused for less than a minute |\n|---|---|---|---|---|\n")
	whole = true
	for _, c := range clients {
		without, ran := k.without.Load(c.name)
		if !ran {
			whole = false
			continue
		}
		said, later := "the refusal", "fails"
		if c.refused != "" {
			said = fmt.Sprintf("%q", c.refused)
		}
		if c.repeats {
			later = "asks again"
		}
		if c.java && without == beside {
			without = "with `--java`"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", c.name, k.version(t, c), without, said, later)
	}
	return table.String(), whole
}

// withoutVersions takes the second column out of a table.
func withoutVersions(table string) string {
	var rest strings.Builder
	for line := range strings.Lines(table) {
		cells := strings.SplitN(line, "|", 4)
		rest.WriteString(cells[1] + "|" + cells[3])
	}
	return rest.String()
}

// version is the first number with a point that the client's command for it prints.
func (k *clientKit) version(t *testing.T, c client) string {
	t.Helper()
	words := strings.Fields(c.version)
	switch words[0] {
	case "pip":
		words = []string{"python", "-c", "import importlib.metadata as m; print(m.version('" + words[1] + "'))"}
	case "npm":
		words = []string{"node", "-p", "require('./node/node_modules/" + words[1] + "/package.json').version"}
	case "ruby":
		if len(words) < 3 {
			break
		}
		words = []string{"ruby", "-e", "require '" + words[1] + "'; puts " + words[2]}
	}
	program := words[0]
	if path := k.programs[program]; path != "" {
		program = path
	}
	program = strings.TrimSuffix(program, "_") // another program's name than a client's
	cmd := exec.Command(program, words[1:]...) // the test's context has ended with its parts
	cmd.Dir = clientsFolder
	out, err := cmd.CombinedOutput()
	found := regexp.MustCompile(`\d+(\.\d+)+`).FindString(string(out))
	if err != nil || found == "" {
		t.Errorf("%s says no version: %v\n%s", strings.Join(words, " "), err, out)
	}
	return found
}
