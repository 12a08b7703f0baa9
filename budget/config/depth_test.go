package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/must"
)

// A value that nests deeper than any configuration is refused at its line before the parser
// sees it; brackets and dots in texts and comments nest nothing.
func TestConfigDepth(t *testing.T) {
	t.Parallel()
	many := func(s string, n int) string { return strings.Repeat(s, n) }
	for name, test := range map[string]struct {
		text string
		line int // 0: it is not too deep
	}{
		"arrays":            {"# one\na = " + many("[", 32) + many("]", 32), 0},
		"one array more":    {"# one\na = " + many("[", 33) + many("]", 33), 2},
		"a dotted key":      {many("a.", 32) + "a = 1", 0},
		"one dot more":      {"\n\n" + many("a.", 33) + "a = 1", 3},
		"quoted parts":      {many(`"a" . `, 33) + "a = 1", 1},
		"inline tables":     {"a = " + many("{ a = ", 33) + "1" + many(" }", 33), 1},
		"dots in tables":    {"a = " + many("{ a.a.a = ", 12) + "1" + many(" }", 12), 1},
		"a table's name":    {"[" + many("a.", 33) + "a]", 1},
		"below a name":      {"[" + many("a.", 19) + "a]\nb = 1\n" + many("b.", 15) + "b = 1", 3},
		"below the next":    {"[" + many("a.", 19) + "a]\nb = 1\n[c]\n" + many("b.", 15) + "b = 1", 0},
		"stack":             {"a = " + many("[", 5_000_000), 1},
		"time":              {many("a.", 1000) + "a = 1", 1},
		"side by side":      {"a = [" + many("[1, 2.5], ", 100) + "]\n" + many("[[b]]\n", 100), 0},
		"many keys":         {many("a.b = {c.d = 1}\n", 1) + "x = [\n" + many("  {a.b = 1},\n", 100) + "]", 0},
		"a comment":         {"a = 1 # " + many("[", 100) + many("a.", 100), 0},
		"a text":            {`a = "\"` + many("[", 100) + `"` + "\nb = '" + many("{", 100) + `\'`, 0},
		"several lines":     {"a = \"\"\"\n\"" + many("[\n", 100) + `\""""` + "\nb = '''" + many("a.", 100) + "'''", 0},
		"after a long text": {"a = \"\"\"\n\n\"\"\"\nb = " + many("[", 33), 4},
		"after an open one": {"a = \"x\nb = " + many("[", 33), 2},
	} {
		path := filepath.Join(t.TempDir(), "costs.toml")
		must.Do(t, os.WriteFile(path, []byte(test.text), 0o600))
		want := fmt.Sprintf("costs.toml:%d: tables and arrays are nested more than 32 deep here", test.line)
		_, err := config.Parse(path)
		if got := fmt.Sprint(err); strings.Contains(got, want) != (test.line > 0) || test.line == 0 && strings.Contains(got, "deep here") {
			t.Errorf("%s: %.300s; want line %d (0: not too deep)", name, got, test.line)
		}
	}
}

// The first hundred faults of a file are listed.
func TestConfigListsSomeFaults(t *testing.T) {
	t.Parallel()
	var faults, odd strings.Builder
	for i := range 150 {
		fmt.Fprintf(&faults, "[upstream.x%d.costs]\nget = -1\n", i)
		fmt.Fprintf(&odd, "[upstream.x%d]\nparallel = 1\n[upstream.x%[1]d.costs]\nget = 0\n[upstream.x%[1]d.limit.a]\nlimit = 10\nwindow = \"1h\"\n[upstream.x%[1]d.limit.b]\nlimit = 20\nwindow = \"1h\"\n[upstream.x%[1]d.credential.a]\n", i)
	}
	path := filepath.Join(t.TempDir(), "costs.toml")
	list := func(text string) (config.Errors, config.Errors) {
		t.Helper()
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		c := must.Get(config.Parse(path))(t)
		var errs config.Errors
		errors.As(c.Err(), &errs)
		return errs, c.Warnings()
	}
	errs, _ := list(faults.String())
	if n := len(errs); n != 101 || errs[0].Line != 1 || errs[n-1].Line != 300 || !strings.Contains(errs[n-1].Message, "more errors than the first 100") {
		t.Errorf("%d errors, the last: %v", n, errs[max(0, n-1)])
	}
	errs, warnings := list(odd.String())
	if n := len(warnings); len(errs) != 0 || n != 101 || !strings.Contains(warnings[n-1].Message, "more warnings than the first 100") {
		t.Errorf("%v; %d warnings, want 101: %.300v", errs, n, warnings)
	}
}
