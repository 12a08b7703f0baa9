package sqlitestore

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// walSuffix is the suffix of SQLite's write-ahead log.
const walSuffix = "-wal"

// inPlace reports whether the path still has the file that was opened. A person may remove
// or replace it, and nobody would see writes to the old one. A file that cannot be examined
// counts as in place, unless it or its directory does not exist, or no file is open.
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
	s.wal, _ = os.Stat(s.path + walSuffix) // the first write creates it at the latest
	s.mu.Lock()
	s.file = file
	s.mu.Unlock()
	return nil
}

// lockInPlace waits for the file's lock until the context ends. If the file was replaced,
// before or meanwhile, it switches to the new one. The caller holds turn.
func (s *Store) lockInPlace(ctx context.Context) error {
	for {
		if s.lock == nil || !s.lock.lingers() {
			if !s.inPlace() { // its lock may be held by a process that does not know
				if err := s.reopen(ctx); err != nil {
					return err
				}
			}
			if err := s.lock.take(ctx); err != nil {
				return err
			}
		}
		if s.inPlace() {
			return nil
		}
		s.lock.drop()
	}
}

// reopen opens the file that the path has now, or creates one. The caller holds turn.
func (s *Store) reopen(ctx context.Context) error {
	if err := s.enter(ctx, s.looks); err != nil {
		return err
	}
	defer func() { <-s.looks }()
	// The last connection to close a file removes the log at its path. If that log belongs to
	// another file, another process needs it, so the old file stays open.
	log, err := os.Stat(s.path + walSuffix)
	if ours := err == nil && s.wal != nil && os.SameFile(log, s.wal); ours || errors.Is(err, fs.ErrNotExist) {
		_ = errors.Join(s.reader.close(), s.writer.close()) // nobody sees the old file any more
	}
	_ = s.lock.close() // likewise
	s.reader, s.writer, s.lock = nil, nil, nil
	s.checked = false
	s.cache.Purge()
	s.mu.Lock()
	s.file = nil
	s.mu.Unlock()
	return s.start(ctx, ctx)
}
