package daemon

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"os"

	"github.com/quotactl/quotactl/budget/config"
)

// watchedFile notices that a file has changed: somebody wrote to it, replaced it, or
// changed a symbolic link on its path. Only one goroutine may use it.
type watchedFile struct {
	path string
	// seen is the file's state when it was last read, and sum the hash of its content
	// then. moved is its state at the last poll, if that differed from seen.
	seen, moved fileState
	sum         []byte // nil: it could not be read
}

// fileState is what stat says of a file.
type fileState struct {
	info  fs.FileInfo // nil: stat failed
	fault string      // why
}

// same compares device and inode, size and time. A changed symbolic link leads to
// another inode.
func (s fileState) same(other fileState) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil && s.fault == other.fault
	}
	return os.SameFile(s.info, other.info) && s.info.Size() == other.info.Size() && s.info.ModTime().Equal(other.info.ModTime())
}

// look returns the file's present state.
func (f *watchedFile) look() fileState {
	info, err := os.Stat(f.path)
	if err != nil {
		return fileState{fault: err.Error()}
	}
	return fileState{info: info}
}

// mark notes the present file as read. Call it before reading, so that a write during the
// read is noticed.
func (f *watchedFile) mark() {
	f.seen, f.moved = f.look(), fileState{}
	f.sum = f.content()
}

// changed reports whether the file's content differs from when it was marked, and marks
// it. It waits until a write or replacement is complete: two polls must find the same
// state. So each new content is reported once, and so is a missing file.
func (f *watchedFile) changed() bool {
	now := f.look()
	switch {
	case !f.again():
		return false
	case now.same(f.seen):
		f.moved = fileState{}
		return false
	case !now.same(f.moved):
		f.moved = now
		return false
	}
	before := f.sum
	f.seen, f.moved = now, fileState{}
	f.sum = f.content()
	return f.sum == nil || !bytes.Equal(f.sum, before)
}

// again reports whether the file can be read more than once; a pipe cannot.
func (f *watchedFile) again() bool { return f.seen.info == nil || f.seen.info.Mode().IsRegular() }

// content is a hash of the file's content; nil if the file cannot be read, or only once.
func (f *watchedFile) content() []byte {
	if !f.again() {
		return nil
	}
	text, err := config.ReadFile(f.path)
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(text)
	return sum[:]
}
