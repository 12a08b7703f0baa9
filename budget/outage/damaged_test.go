package outage

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// damages are what a power cut, a full disk or a person leaves of a file.
var damages = map[string]func([]byte) []byte{
	"empty":          func([]byte) []byte { return nil },
	"NUL":            func(data []byte) []byte { return make([]byte, len(data)) },
	"garbage":        func(data []byte) []byte { return bytes.Repeat([]byte{0xfe, '{', 7}, len(data)/3+1) },
	"half":           func(data []byte) []byte { return data[:len(data)/2] },
	"half, then NUL": func(data []byte) []byte { return append(data[:len(data)/2:len(data)/2], make([]byte, len(data)/2)...) },
	"one byte less":  func(data []byte) []byte { return data[:max(0, len(bytes.TrimSpace(data))-1)] },
	"null":           func([]byte) []byte { return []byte("null\n") },
	"another's":      func([]byte) []byte { return []byte("[1, 2, 3]\n") },
	"no members":     func([]byte) []byte { return []byte("{}\n") },
}

// A damaged file of the state directory is set aside with the reason, logged, and shown by
// doctor and status; the host begins it anew, and goes on.
func TestDamagedFileIsSetAside(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"memory/up+key1", "own/up+key1", hostFile} {
		for name, damage := range damages {
			t.Run(strings.ReplaceAll(file, "/", " ")+" "+name, func(t *testing.T) {
				var log bytes.Buffer
				h := newHost(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
				for i := range 3 {
					h.result(driver.Granted, dayOf("day"), "list", fmt.Sprint(i), 2)
				}
				path := filepath.Join(h.options.Dir, file)
				spoilt := damage(must.Get(os.ReadFile(path))(t))
				must.Do(t, os.WriteFile(path, spoilt, 0o600))
				h.result(driver.Granted, dayOf("day"), "list", "after", 2)
				aside := must.Get(filepath.Glob(filepath.Join(h.options.Dir, asideFolder, "*", "*.????????")))(t)
				must.Equal(t, len(aside), 1, "files are set aside")
				check.Equal(t, string(must.Get(os.ReadFile(aside[0]))(t)), string(spoilt))
				check.Equal(t, len(must.Get(os.ReadFile(aside[0]+".why"))(t)) > 10, true, "the reason is written")
				check.Contains(t, log.String(), path)
				check.Equal(t, strings.Count(log.String(), "damaged"), 1, "it is logged once")
				s := New(h.store, h.options)
				check.Contains(t, s.Aside(), " in "+filepath.Join(h.options.Dir, asideFolder))
				check.Equal(t, s.left(asideFolder, driver.Fault, "", "", "").Level, driver.Fault)
				must.Do(t, s.Close())
				check.Equal(t, strings.Count(log.String(), "damaged"), 1, "the file is whole again")
			})
		}
	}
}

// A named pipe in the place of a file is as an empty one: nobody waits for its writer.
func TestANamedPipeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"memory/up+key1", "own/up+key1", hostFile} {
		h := newHost(t, Options{})
		h.result(driver.Granted, dayOf("day"), "list", "before", 2)
		path := filepath.Join(h.options.Dir, file)
		must.Do(t, errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)))
		h.result(driver.Granted, dayOf("day"), "list", "after", 2)
		check.Equal(t, len(must.Get(filepath.Glob(filepath.Join(h.options.Dir, asideFolder, "*", "*.????????")))(t)), 1, file, "files are set aside")
	}
}

// What can be read of a damaged file of the host's own charges still counts as theirs.
func TestDamagedOwnFileKeepsItsLines(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{})
	for i := range 4 {
		h.result(driver.Granted, dayOf("day"), "list", fmt.Sprint(i), 2)
	}
	path := filepath.Join(h.options.Dir, "own", fileName(up))
	lines := bytes.SplitAfter(must.Get(os.ReadFile(path))(t), []byte("\n"))
	must.Do(t, os.WriteFile(path, bytes.Join(lines[:3], nil), 0o600)) // cut off where a line ends
	h.result(driver.Granted, dayOf("day"), "list", "after", 2)
	list, _, why, _ := New(h.store, h.options).memory.loadOwn(up)
	must.Do(t, why)
	check.Equal(t, charged(list, "day", 0), int64(6), "the two that were left, and the one since")
}

// They do so too if the disk has room for setting the file aside, but not yet for a new one.
func TestDamagedOwnFileKeepsItsLinesOnAFullDisk(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{})
	for i := range 4 {
		h.result(driver.Granted, dayOf("day"), "list", fmt.Sprint(i), 2)
	}
	folder := filepath.Join(h.options.Dir, "own")
	path := filepath.Join(folder, fileName(up))
	lines := bytes.SplitAfter(must.Get(os.ReadFile(path))(t), []byte("\n"))
	must.Do(t, os.WriteFile(path, bytes.Join(lines[:3], nil), 0o600))
	s := New(h.store, h.options)
	damaged := s.memory.damaged
	s.memory.damaged = func(budget, kind, path string, data []byte, why error) {
		damaged(budget, kind, path, data, why)
		must.Do(t, os.Remove(folder))
		must.Do(t, os.Symlink("nowhere", folder)) // nothing can be written
	}
	s.memory.mu.Lock()
	s.memory.of(up)
	s.memory.mu.Unlock()
	must.Do(t, os.Remove(folder))
	must.Do(t, s.Close()) // there is room again
	list, _, why, _ := New(h.store, h.options).memory.loadOwn(up)
	must.Do(t, why)
	check.Equal(t, charged(list, "day", 0), int64(4), "written")
}

// A file whose reason cannot be written stays where it was, and one that is gone leaves no reason.
func TestSetAsideWhollyOrNotAtAll(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{})
	s := New(h.store, h.options)
	defer s.Close() //nolint:errcheck // nothing is written
	path := filepath.Join(s.journal.folder(up), "a.charge")
	to := filepath.Join(h.options.Dir, asideFolder, fileName(up), "a.charge")
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(t, os.WriteFile(path, []byte("{"), 0o600))
	must.Do(t, os.MkdirAll(to+".why", 0o700)) // which no file replaces
	check.Equal(t, s.journal.setAside(up, path, errors.New("damaged")) != nil, true, "an error")
	check.NoError(t, check.Err(os.Stat(path)), "the record")
	must.Do(t, os.Remove(to+".why"))
	must.Do(t, s.journal.setAside(up, path, errors.New("damaged")))
	check.Equal(t, string(must.Get(os.ReadFile(to+".why"))(t)), "damaged\n")
	must.Do(t, s.journal.setAside(up, path, errors.New("damaged"))) // by another process
	check.NoError(t, check.Err(os.Stat(to+".why")), "the reason beside it")
	must.Do(t, os.Remove(to))
	must.Do(t, s.journal.setAside(up, path, errors.New("damaged")))
	check.Is(t, check.Err(os.Stat(to+".why")), os.ErrNotExist, "a reason without a file")
}

// The files of older versions are read: they have no first line, and processes appended to
// them.
func TestOwnFileOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{})
	must.Do(t, os.MkdirAll(filepath.Join(h.options.Dir, "own"), 0o700))
	path := filepath.Join(h.options.Dir, "own", fileName(up))
	line := `{"id":"%s","from":1,"at":1,"amounts":{"day":2}}` + "\n"
	must.Do(t, os.WriteFile(path, fmt.Appendf(nil, line+"\n"+line, "a", "b"), 0o600))
	list, _, why, _ := New(h.store, h.options).memory.loadOwn(up)
	check.NoError(t, why)
	check.Equal(t, charged(list, "day", 0), int64(4))
}

// A damaged breaker does not open, and a damaged record of the journal is set aside as one
// that the store refuses.
func TestDamagedBreaker(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		for _, perBudget := range []bool{false, true} {
			h := newHost(t, Options{PerBudget: perBudget})
			s := New(h.store, h.options)
			b := s.breaker(up)
			must.Equal(t, b.open(errors.New("down")), true)
			data := damage(must.Get(os.ReadFile(b.file()))(t))
			must.Do(t, os.WriteFile(b.file(), data, 0o600))
			_, open := b.read()
			check.Equal(t, open, false, name)
			check.Equal(t, s.Aside() != "", true, name)
			must.Do(t, s.Close())
		}
	}
}

// A file that cannot be read is no damaged one: it may be whole, so it stays, and is not
// written over.
func TestUnreadableFileStays(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"memory", "own"} {
		for name, put := range map[string]func(path string) error{ // root may read any file
			"a folder":                 func(path string) error { return os.Mkdir(path, 0o700) },
			"a link that leads astray": func(path string) error { return os.Symlink("nowhere", path) },
			"a device":                 func(path string) error { return os.Symlink("/dev/zero", path) },
		} {
			var log bytes.Buffer
			h := newHost(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			path := filepath.Join(h.options.Dir, file, fileName(up))
			must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), put(path)))
			before := must.Get(os.Lstat(path))(t)
			h.result(driver.Granted, dayOf("day"), "list", "a", 2)
			check.Equal(t, must.Get(os.Lstat(path))(t).Mode(), before.Mode(), file, name)
			check.Equal(t, strings.Count(log.String(), "read what the host "), 1, file, name, "warnings")
			_, err := os.Stat(filepath.Join(h.options.Dir, "memory", fileName(up)))
			check.Equal(t, err == nil || file == "memory", true, file, name, "what the store said is written")
			s := New(h.store, h.options)
			check.Equal(t, s.Aside(), "")
			finding := s.directory()
			check.Equal(t, finding.Level, driver.Fault, file, name, "doctor's level")
			check.Contains(t, finding.Says, file+"/up+key1")
			must.Do(t, os.Remove(path))
			check.Equal(t, s.directory().Level, driver.OK, "doctor's level without it")
		}
	}
}

// While charges are written down, an empty or damaged ledger of the allowance grants nothing,
// and doctor shows it: what the host has spent is not known.
func TestDamagedAllowance(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		h := newHost(t, Options{Allowance: 5})
		h.store.down[up] = true
		h.result(driver.Granted, dayOf("day"), "list", "a", 2)
		path := filepath.Join(h.options.Dir, "allowance.db")
		data := damage(must.Get(os.ReadFile(path))(t))
		must.Do(t, os.WriteFile(path, data[:min(len(data), 4000)], 0o600))
		for _, beside := range must.Get(filepath.Glob(path + "-*"))(t) {
			must.Do(t, os.Remove(beside))
		}
		d, err := h.charge(dayOf("day"), "list", "b", 2)
		check.Equal(t, d.Result != driver.Granted, true, name)
		check.Contains(t, fmt.Sprint(err), "allowance.db", name)
		s := New(h.store, h.options)
		check.Equal(t, slices.ContainsFunc(s.Diagnose(t.Context()), func(f driver.Finding) bool {
			return f.Check == "allowance" && f.Level == driver.Fault
		}), true, name)
		must.Do(t, s.Close())
	}
}
