package outage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Diagnose returns the store's own findings and the host's: its directory, the breaker,
// and records of an outage; what the ledgers say of other hosts is in [Store.Crowding]. It asks the store even while the breaker is open.
func (s *Store) Diagnose(ctx context.Context) []driver.Finding {
	var list []driver.Finding
	if inner, ok := s.inner.(interface {
		Diagnose(context.Context) []driver.Finding
	}); ok {
		list = inner.Diagnose(ctx)
	}
	s.inspect()
	if _, err := os.Stat(filepath.Join(s.o.Dir, "allowance.db")); s.o.Dir != "" && err == nil {
		if _, err := s.allowance(ctx); err != nil {
			list = append(list, driver.Finding{Check: "allowance", Level: driver.Fault, Says: err.Error(), Advice: "until it is repaired or removed, calls whose policy is open are refused while the store is out of reach"})
		}
	}
	return append(list, s.directory(), s.breakerFinding(),
		s.left("journal", driver.Warning, "no records of an outage are left", "records of an outage are left: ", "they are recorded by the next decision on their budget: quotactl status does it too"),
		s.left(asideFolder, driver.Fault, "no files are set aside", "files are set aside: ", "look at the files and their .why in "+filepath.Join(s.o.Dir, asideFolder)+", record by hand what is a charge if need be, and remove them"))
}

// directory checks that the host can write its directory.
func (s *Store) directory() driver.Finding {
	f := driver.Finding{Check: "state", Level: driver.OK, Says: s.o.Dir + " keeps what this host remembers"}
	if s.o.Dir == "" {
		f.Level, f.Says, f.Advice = driver.Warning, "this host has no directory of its own", "name one with state_dir"
		return f
	}
	dir, err := makeDir(s.o.Dir)
	if err == nil {
		probe := filepath.Join(dir, "doctor")
		if err = writeFile(probe, []byte("doctor\n")); err == nil {
			err = os.Remove(probe)
		}
	}
	if err == nil {
		if err = s.unreadable(); err != nil {
			f.Level, f.Says = driver.Fault, fmt.Sprintf("a file of %s cannot be read: %v", s.o.Dir, err)
			f.Advice = "make it a file of this user's, or remove it: until then a loss of the store's data goes unnoticed"
			return f
		}
	}
	if err != nil {
		f.Level, f.Says, f.Advice = driver.Warning, fmt.Sprintf("%s cannot be written: %v", s.o.Dir, err), "until then a loss of the store's data goes unnoticed, and calls are never open"
		if driver.Shortage(s.o.Dir, err) == "" { // else err says what to do
			f.Advice = adviceDir + ": " + f.Advice
		}
	}
	return f
}

// unreadable returns why a file of what the host remembers cannot be read; nil if all can.
func (s *Store) unreadable() error {
	files := []string{hostFile, "breaker"}
	for _, folder := range []string{"memory", "own"} {
		list, err := os.ReadDir(filepath.Join(s.o.Dir, folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, entry := range list {
			files = append(files, filepath.Join(folder, entry.Name()))
		}
	}
	for _, name := range files {
		path := filepath.Join(s.o.Dir, name)
		_, err := readFile(path)
		if found, missing := os.Stat(path); missing == nil && !found.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a file", path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else another process has removed it
			return err
		}
	}
	return nil
}

func (s *Store) breakerFinding() driver.Finding {
	var state outageState
	for _, b := range s.allBreakers() {
		if found, open := b.read(); open {
			state = found
		}
	}
	if state.Cause == "" {
		return driver.Finding{Check: "breaker", Level: driver.OK, Says: "closed (normal): calls ask the store"}
	}
	return driver.Finding{Check: "breaker", Level: driver.Warning, Says: fmt.Sprintf("open since %s: %s", state.Since.UTC().Format(time.RFC3339), state.Cause), Advice: "repair the store; this host probes it until it answers"}
}

// Aside says how many files of each budget are set aside, and where; "" if there are none.
func (s *Store) Aside() string {
	if s.o.Dir != "" {
		_, _ = s.readHost(filepath.Join(s.o.Dir, hostFile)) // a damaged one is set aside
	}
	if of := s.inFolder(asideFolder); of != "" {
		return of + " in " + filepath.Join(s.o.Dir, asideFolder)
	}
	return ""
}

// left finds the files in one of the host's folders.
func (s *Store) left(folder string, level driver.Severity, none, some, advice string) driver.Finding {
	if of := s.inFolder(folder); of != "" {
		return driver.Finding{Check: folder, Level: level, Says: some + of, Advice: advice}
	}
	return driver.Finding{Check: folder, Level: driver.OK, Says: none}
}

// inFolder counts the files of each budget in one of the host's folders.
func (s *Store) inFolder(folder string) string {
	if s.o.Dir == "" {
		return ""
	}
	files, _ := filepath.Glob(filepath.Join(s.o.Dir, folder, "*", "*")) // the pattern is well-formed
	byBudget := map[string]int{}
	for _, path := range files {
		if !strings.HasSuffix(path, ".why") && !strings.HasPrefix(filepath.Base(path), ".") {
			byBudget[budgetName(filepath.Base(filepath.Dir(path)))]++
		}
	}
	var of []string
	for _, name := range slices.Sorted(maps.Keys(byBudget)) {
		of = append(of, fmt.Sprintf("%d of %s", byBudget[name], name))
	}
	return strings.Join(of, ", ")
}
