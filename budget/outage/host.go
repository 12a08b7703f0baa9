package outage

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// hostFile is the file that holds the host's id.
const hostFile = "host"

// hostBytes is the length of a host's id; its hexadecimal form is twice as long.
const hostBytes = 8

var isHost = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(fmt.Sprintf("^[0-9a-f]{%d}$", 2*hostBytes)) })

// hostRetried is the least time between two attempts to read or write the id.
const hostRetried = time.Minute

// host returns the id of the host's directory, which its first use creates at random. It
// returns "" if there is no directory, or the id cannot be read or written.
func (s *Store) host() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.wall()
	if s.hostID != "" || s.o.Dir == "" || s.hostTried > 0 && now-s.hostTried < hostRetried.Microseconds() {
		return s.hostID
	}
	s.hostTried = now
	id, err := s.hostOf()
	if err != nil {
		s.log.Warn("this host cannot be distinguished from others, so after a loss of the store's data it does not count as having reported", "error", err)
	}
	s.hostID = id
	return id
}

// hostOf reads the id in the directory, or creates it, also if the file is damaged. If
// several processes create it at once, the first one's stays.
func (s *Store) hostOf() (string, error) {
	dir, err := makeDir(s.o.Dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, hostFile)
	if id, err := s.readHost(path); !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	id := make([]byte, hostBytes)
	_, _ = rand.Read(id) // never fails, by its contract
	temporary := path + "." + hex.EncodeToString(id)
	if err := writeFile(temporary, []byte(hex.EncodeToString(id)+"\n")); err != nil {
		return "", fmt.Errorf("name the host's directory: %w", err)
	}
	defer func() { _ = os.Remove(temporary) }()
	if err := os.Link(temporary, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("name the host's directory: %w", err)
	}
	if err := syncDir(dir); err != nil {
		return "", fmt.Errorf("name the host's directory: %w", err)
	}
	return s.readHost(path)
}

// readHost reads the id. A damaged file is set aside, and does not exist.
func (s *Store) readHost(path string) (string, error) {
	data, err := readFile(path)
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(data))
	if !isHost().MatchString(id) {
		s.damaged("", hostFile, path, data, errors.New("it does not hold a host's id"))
		return "", fs.ErrNotExist
	}
	return id, nil
}

// crowdSaid is the least time between two warnings that more hosts are at work than
// configured, across the host's processes.
const crowdSaid = time.Hour

// crowded notes how many hosts are at work on a budget, and warns if they are too many.
func (s *Store) crowded(name string, atWork int) {
	if !s.memory.crowd(name, atWork, s.o.Hosts) {
		return
	}
	s.log.Warn("more state directories are in use on this budget than [store] hosts says: after an outage or a loss of the store's data more may be spent than the quota; "+
		"set hosts to how many there are, or give the processes of one machine one state_dir", "budget", name, "at_work", atWork, "hosts", s.o.Hosts)
}

// crowd notes how many hosts are at work, and reports whether to warn now that there are
// more than configured.
func (m *memory) crowd(name string, atWork int, hosts int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	now := m.wall()
	if r.AtWork != atWork {
		r.dirty = true
	}
	r.AtWork, r.AtWorkAt = atWork, now
	if ago := now - r.Crowd; int64(atWork) <= hosts || ago >= 0 && ago < crowdSaid.Microseconds() {
		return false
	}
	r.Crowd, r.dirty = now, true
	if err := m.save(name, r); err != nil {
		m.warn(name, err)
	}
	return true
}

// names lists the budgets that the directory has files of.
func (m *memory) names() (list []string) {
	for _, folder := range []string{"memory", "own"} {
		files, _ := os.ReadDir(filepath.Join(m.dir, folder)) // there may be none
		for _, file := range files {
			// One that is not a budget's was left by a write that was cut off.
			if name := budgetName(file.Name()); driver.ValidBudget(name) {
				list = append(list, name)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// atWork is how many hosts were lately at work on a budget, by what the process remembers,
// else by what the directory has.
func (m *memory) atWork(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.of(name); m.wall()-r.AtWorkAt < driver.HostNoted {
		return r.AtWork
	}
	return 0
}

// inspect reads all files of the host, so that what is damaged is set aside.
func (s *Store) inspect() {
	_, _ = s.readHost(filepath.Join(s.o.Dir, hostFile))
	for _, name := range s.memory.names() {
		s.memory.refresh(name)
	}
}

// Crowding finds the budgets on which more hosts were at work than configured, by the last
// answers of the store that this host has seen: ask the budgets first.
func (s *Store) Crowding() driver.Finding {
	f := driver.Finding{Check: "hosts", Level: driver.OK, Says: "no more state directories are in use than [store] hosts says"}
	if s.o.Dir == "" {
		f.Level, f.Says, f.Advice = driver.Warning, "the number of state directories in use is not known: this host has none", "name one with state_dir"
		return f
	}
	var crowded []string
	for _, name := range s.memory.names() {
		if at := s.memory.atWork(name); int64(at) > s.o.Hosts {
			crowded = append(crowded, fmt.Sprintf("%d on %s", at, name))
		}
	}
	if len(crowded) > 0 {
		f.Level, f.Says = driver.Warning, fmt.Sprintf("more state directories are in use than the %d that [store] hosts says: %s", s.o.Hosts, strings.Join(crowded, ", "))
		f.Advice = "set hosts to how many there are, or give the processes of one machine one state_dir: else more may be spent than the quota after an outage or a loss"
	}
	return f
}
