package sqlitestore

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// walSuffix ends the name of SQLite's write-ahead log.
const walSuffix = "-wal"

// inPlace reports whether the file is still the one that was opened. A person may
// remove it, or put another in its place: what was written to the old one nobody
// else would see. Where the file cannot be looked at, it counts as in place, unless
// it or its directory is gone, or none is open.
func (s *Store) inPlace() bool {
	s.mu.Lock()
	opened := s.file
	s.mu.Unlock()
	if opened == nil {
		return false
	}
	now, err := os.Stat(s.path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR)
	}
	return os.SameFile(now, opened)
}

// opened notes which file was opened.
func (s *Store) opened() error {
	file, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	s.wal, _ = os.Stat(s.path + walSuffix) // there with the first write at the latest
	s.mu.Lock()
	s.file = file
	s.mu.Unlock()
	return nil
}

// lockInPlace waits for the file's lock until the context ends, and goes over to
// another file where that one was replaced, also meanwhile. The caller holds turn.
func (s *Store) lockInPlace(ctx context.Context) error {
	for {
		if !s.inPlace() {
			if err := s.reopen(ctx); err != nil {
				return err
			}
		}
		if err := s.lock.take(ctx); err != nil {
			return err
		}
		if s.inPlace() {
			return nil
		}
		s.lock.drop()
	}
}

// reopen opens the file that is in place now, or makes one. The caller holds turn.
func (s *Store) reopen(ctx context.Context) error {
	if err := s.enter(ctx, s.looks); err != nil {
		return err
	}
	defer func() { <-s.looks }()
	// Who closes a file last removes the log of its name. Where that is not this
	// one's, another process counts on it: then the old file is left open.
	log, err := os.Stat(s.path + walSuffix)
	if ours := err == nil && s.wal != nil && os.SameFile(log, s.wal); ours || errors.Is(err, fs.ErrNotExist) {
		_ = errors.Join(s.reader.close(), s.writer.close()) // of what nobody sees any more
	}
	_ = s.lock.close() // likewise
	s.reader, s.writer, s.lock = nil, nil, nil
	s.cache.Purge()
	s.mu.Lock()
	s.file = nil
	s.mu.Unlock()
	return s.start(ctx)
}
