package outage

import (
	"context"
	"fmt"
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
	return append(list, s.directory(), s.breakerFinding(), s.left("journal", driver.Warning, "they are recorded by the next decision on their budget: quotactl status does it too"),
		s.left("aside", driver.Fault, "look at the files and their .why in "+filepath.Join(s.o.Dir, "aside")+", record them by hand if need be, and remove them"))
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
		if err = writeFile(probe, nil, false); err == nil {
			err = os.Remove(probe)
		}
	}
	if err != nil {
		f.Level, f.Says, f.Advice = driver.Warning, fmt.Sprintf("%s cannot be written: %v", s.o.Dir, err), "make it writable for this user, or name another with state_dir: until then a loss of the store's data goes unnoticed, and calls are never open"
	}
	return f
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

// left counts the records in one of the host's folders.
func (s *Store) left(folder string, level driver.Severity, advice string) driver.Finding {
	f := driver.Finding{Check: folder, Level: driver.OK, Says: "no records of an outage are left"}
	files, err := filepath.Glob(filepath.Join(s.o.Dir, folder, "*", "*"))
	byBudget := map[string]int{}
	for _, path := range files {
		if !strings.HasSuffix(path, ".why") && !strings.HasPrefix(filepath.Base(path), ".") {
			byBudget[budgetName(filepath.Base(filepath.Dir(path)))]++
		}
	}
	if err == nil && len(byBudget) > 0 && s.o.Dir != "" {
		var of []string
		for _, name := range slices.Sorted(maps.Keys(byBudget)) {
			of = append(of, fmt.Sprintf("%d of %s", byBudget[name], name))
		}
		f.Level, f.Says, f.Advice = level, "records of an outage are left: "+strings.Join(of, ", "), advice
	}
	return f
}
