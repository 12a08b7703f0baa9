package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// blocksOf are the blocks of a page with these words after their fence, in order. Blocks
// in a list are indented.
func blocksOf(t *testing.T, page string, info ...string) (texts []string) {
	t.Helper()
	text := strings.ReplaceAll(documents(t)[page], "\n   ", "\n")
	blocks, _ := split(text)
	for _, b := range blocks {
		if strings.Join(b.info, " ") == strings.Join(info, " ") {
			texts = append(texts, b.text)
		}
	}
	if len(texts) == 0 {
		t.Fatalf("%s has no block of %v", page, info)
	}
	return texts
}

// The commands of docs/cron.md, with the variables that cron gives.
func TestDocumentedCron(t *testing.T) {
	effort.Processes(t)
	w := &docWay{&docJob{t: t, dir: t.TempDir()}, "docs/cron.md"}
	program := filepath.Dir(must.Get(exec.LookPath("quotactl"))(t))
	w.env = []string{"HOME=" + w.dir, "PATH=" + program + ":/usr/bin:/bin", "QUOTACTL_CONFIG=" + w.dir + "/costs.toml", "GORACE=atexit_sleep_ms=0", "YOUTUBE_API_KEY=k"}
	blocks := blocksOf(t, w.page, "sh", "cron")
	w.run(0, "/bin/sh", "-ec", blocks[0])
	w.patient()
	script := "set -e\n"
	for _, block := range blocks[1:] {
		script += "(\n" + block + ")\n"
	}
	w.write("cron.sh", script)
	said := string(w.run(0, "/bin/sh", w.dir+"/cron.sh"))
	check.Equal(t, strings.Count(said, "the call goes here"), 2, "calls in", said)
	check.Contains(t, said, "nightly", "the ledger by job")
	// Two searches are charged; with a floor as large as what is left, no third one is.
	w.run(75, "quotactl", "charge", "youtube/key1", "search.list", "--floor", "92")
	w.write("again.sh", "quotactl lock youtube/key1 --for 1h >/dev/null\n"+blocks[2])
	check.Equal(t, string(w.run(0, "/bin/sh", w.dir+"/again.sh")), "", "said when the units are gone")
	w.write("under.sh", "exec 2>&1\n"+blocks[5])
	check.Contains(t, string(w.run(0, "/bin/sh", w.dir+"/under.sh")), "exit code 75", "of a locked budget")
}

// By the configuration of docs/cron.md nothing is written beside costs.toml, where the
// scripts' user may not be able to write.
func TestDocumentedCronState(t *testing.T) {
	effort.Processes(t)
	w := &docWay{&docJob{t: t, dir: t.TempDir()}, "docs/cron.md"}
	w.env = append(os.Environ(), "YOUTUBE_API_KEY=k")
	w.run(0, "quotactl", "init", "youtube", "--only", "search.list,videos.list")
	written := string(must.Get(os.ReadFile(filepath.Join(w.dir, "costs.toml")))(t))
	state := t.TempDir()
	table := strings.ReplaceAll(blocksOf(t, w.page, "toml", "state")[0], "/var/lib/quotactl", state)
	w.write("costs.toml", regexp.MustCompile(`^\[store\]\nurl .*\n`).ReplaceAllLiteralString(written, table))
	w.run(0, "quotactl", "charge", "youtube/key1", "videos.list")
	files := must.Get(os.ReadDir(w.dir))(t)
	check.Equal(t, len(files), 1, "files beside the configuration, and it")
	check.NoError(t, check.Err(os.Stat(filepath.Join(state, "outage"))), "the state directory")
	check.NoError(t, check.Err(os.Stat(filepath.Join(state, "quotactl.db"))), "the store")
}

// The commands of docs/recipes.md.
func TestDocumentedRecipes(t *testing.T) {
	t.Parallel()
	effort.Processes(t)
	server := redistest.Start(t)
	w := &docWay{&docJob{t: t, dir: t.TempDir()}, "docs/recipes.md"}
	program := filepath.Dir(must.Get(exec.LookPath("quotactl"))(t))
	w.env = []string{"HOME=" + w.dir, "PATH=" + program + ":/usr/bin:/bin", "GORACE=atexit_sleep_ms=0", "YOUTUBE_API_KEY=k"}
	w.run(0, "quotactl", "init", "youtube")
	w.patient() // else an import may send its rows again, and say so
	for _, name := range []string{"noon", "backup", "move"} {
		script := strings.Join(blocksOf(t, w.page, "sh", name), "")
		w.write(name+".sh", "set -e\n"+strings.ReplaceAll(script, "redis://redis.internal:6379/0", server.URL(0)))
	}
	check.Contains(t, string(w.run(0, "sh", "noon.sh")), "4000 units")
	check.Contains(t, string(w.run(0, "sh", "backup.sh")), "youtube/key1     1      0                0      1        0")
	moved := string(w.run(0, "sh", "move.sh"))
	check.Contains(t, moved, "youtube/key1     1      1                0      0        0")
	check.Contains(t, moved, "5500")

	w.write("costs.toml", blocksOf(t, w.page, "toml", "observe")[0])
	w.write("observe.sh", "rm -rf quotactl.db* .quotactl\n"+blocksOf(t, w.page, "sh", "observe")[0])
	observed := string(w.run(0, "sh", "observe.sh"))
	check.Contains(t, observed, "WOULD REFUSE")
}

// A copy of the SQLite file by the commands of docs/recipes.md, put back after another
// charge: the copy lacks that charge, and the host knows of it.
func TestDocumentedRestore(t *testing.T) {
	t.Parallel()
	effort.Processes(t)
	w := &docWay{&docJob{t: t, dir: t.TempDir()}, "docs/recipes.md"}
	w.env = append(os.Environ(), "YOUTUBE_API_KEY=k")
	w.run(0, "quotactl", "init", "youtube")
	w.patient()
	for _, name := range []string{"noon", "copy", "searches", "restore"} {
		w.write(name+".sh", "set -e\n"+strings.Join(blocksOf(t, w.page, "sh", name), ""))
		w.run(0, "sh", name+".sh")
	}
	for _, copied := range []string{"sqlite:copy.db", "sqlite:copy2.db", "sqlite:quotactl.db"} {
		var ledger struct{ Total struct{ Units int64 } }
		must.Do(t, json.Unmarshal(w.run(0, "quotactl", "ledger", "youtube/key1", "--store", copied, "--json"), &ledger))
		check.Equal(t, ledger.Total.Units, 4000, "units in", copied)
	}
	used := regexp.MustCompile(`(?m)^(pool|search) .* (4000|40) `)
	check.Equal(t, len(used.FindAllString(string(w.run(0, "quotactl", "status", "youtube/key1")), -1)), 2, "limits that have what was spent, after the restore")
}
