package jobs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/must"
)

// commandJob is a command job's table; its last line is the command's.
func commandJob(keys ...string) (text string, line int) {
	text = "[job.j]\nbudget = \"youtube/key1\"\nschedule = \"@daily\"\n" + strings.Join(keys, "\n") + "\n"
	return text, strings.Count(tables+text, "\n")
}

func TestLoadFindsFaultsOfCommands(t *testing.T) {
	for tells, keys := range map[string][]string{
		`names no program: write command = ["./fetch.sh", "{region}"]`: {`command = []`},
		"names no program": {`command = [" ", "x"]`},
		"command is a string: write an array of strings":                     {`command = "./fetch.sh {region}"`},
		"command holds 1: write an array of strings":                         {`command = ["./fetch.sh", 1]`},
		"contains a NUL byte":                                                {`command = ["./fetch.sh", "a\u0000b"]`},
		`contains {regoin}, which is not a placeholder: use {job}`:           {`command = ["./fetch.sh", "--region={regoin}"]`},
		`did you mean "{region}"`:                                            {`command = ["./{regio}.sh"]`},
		"output belongs to a fetch: a command does this itself; take it out": {`command = ["fetch"]`, `output = "{tick}"`},
		"max_pages belongs to a fetch":                                       {`command = ["fetch"]`, `max_pages = 3`},
		"url belongs to a fetch: move it into [job.j.fetch]":                 {`fetch = { operation = "videos.list", url = "https://h/", output = "{tick}" }`, `url = "https://h/"`},
		"has no price":      {`command = ["fetch"]`, `operation = "x.list"`},
		"could never start": {`command = ["fetch"]`, `needs = { "search.list" = 51 }`},
		"does nothing: write [job.j.fetch] with an operation, a url and an out": nil,
		`or write command = ["./fetch.sh", "{region}"]`:                         nil,
	} {
		text, line := commandJob(keys...)
		cfg, list := read(t, text)
		var faults config.Errors
		if !errors.As(cfg.Err(), &faults) || len(faults) != 1 || len(list) != 0 || !strings.Contains(faults[0].Message, tells) {
			t.Errorf("%v: %d jobs and %v, want one fault that tells %q", keys, len(list), cfg.Err(), tells)
			continue
		}
		if keys != nil && faults[0].Line != line {
			t.Errorf("%v: line %d, want %d", keys, faults[0].Line, line)
		}
	}
}

// Other braces, and whatever a shell would take for more, are the program's.
func TestLoadLeavesCommandsAlone(t *testing.T) {
	words := `["find", "{}", "{\"a\": 1}", "${1}", "{a,b}", "$HOME; rm", "{job}{region}{run}{tick}"]`
	text, _ := commandJob("command = " + words)
	cfg, list := read(t, text)
	if cfg.Err() != nil || len(cfg.Warnings()) != 0 || len(list) != 1 || len(list[0].Command) != 7 {
		t.Errorf("%d jobs, %v, warnings %v", len(list), cfg.Err(), cfg.Warnings())
	}
}

// What a command needs before it starts is said, or its operation, or a unit.
func TestLoadNeedsOfCommands(t *testing.T) {
	for key, want := range map[string]budget.Needs{
		"": {"": 1}, `operation = "search.list"`: {"search.list": 1}, `needs = { "videos.list" = 4 }`: {"videos.list": 4},
	} {
		text, _ := commandJob(`command = ["fetch"]`, key)
		cfg, list := read(t, text)
		if cfg.Err() != nil || len(list) != 1 || fmt.Sprint(list[0].Needs) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, %v, want %v", key, list, cfg.Err(), want)
		}
	}
}

// A program that cannot be started now may be there by the time its job runs.
func TestLoadWarnsOfCommands(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"plain": 0o644, "good": 0o755} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), nil, mode))
	}
	for program, tells := range map[string]string{
		"./not-there.sh":   "./not-there.sh does not exist",
		dir + "/not-there": dir + "/not-there does not exist",
		dir:                "is a folder",
		dir + "/plain":     "is not executable: chmod +x",
		dir + "/good":      "",
		"not-there":        "",
		"./{region}.sh":    "",
	} {
		text, line := commandJob(fmt.Sprintf("command = [%q]", program))
		cfg, list := read(t, text)
		warnings := cfg.Warnings()
		if cfg.Err() != nil || len(list) != 1 {
			t.Errorf("%s: %d jobs, %v", program, len(list), cfg.Err())
		}
		if tells == "" && len(warnings) != 0 {
			t.Errorf("%s: warnings %v, want none", program, warnings)
		}
		if tells != "" && (len(warnings) != 1 || !strings.Contains(warnings[0].Message, tells) || warnings[0].Line != line) {
			t.Errorf("%s: warnings %v, want one of line %d that tells %q", program, warnings, line, tells)
		}
	}
}

// A program beside the configuration is found from any working directory.
func TestLoadFindsTheProgramBesideTheConfiguration(t *testing.T) {
	text, _ := commandJob(`command = ["./costs.toml"]`)
	cfg, _ := read(t, text)
	if warnings := cfg.Warnings(); len(warnings) != 1 || !strings.Contains(warnings[0].Message, "is not executable") {
		t.Errorf("warnings %v: the file beside it was not found", warnings)
	}
}
