package daemon

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"os"

	"github.com/quotactl/quotactl/budget/config"
)

// watchedFile notices that a file has become another: it was written, another was
// put in its place, or what a link on the way leads to was. It is looked at by
// one goroutine.
type watchedFile struct {
	path string
	// seen is the file as it was when it was read, and sum what it held; moved is how
	// it was at the last look, if that was another.
	seen, moved fileState
	sum         []byte // nil: it could not be read
}

// fileState is how a file looks from outside.
type fileState struct {
	info  fs.FileInfo // nil: there is none
	fault string      // why not
}

// same compares device and inode, size and time. A link that leads elsewhere leads
// to another inode.
func (s fileState) same(other fileState) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil && s.fault == other.fault
	}
	return os.SameFile(s.info, other.info) && s.info.Size() == other.info.Size() && s.info.ModTime().Equal(other.info.ModTime())
}

// look is how the file is now.
func (f *watchedFile) look() fileState {
	info, err := os.Stat(f.path)
	if err != nil {
		return fileState{fault: err.Error()}
	}
	return fileState{info: info}
}

// mark takes the file as it is for read. To be called before it is read: what is
// written meanwhile is then noticed.
func (f *watchedFile) mark() {
	f.seen, f.moved = f.look(), fileState{}
	f.sum = f.content()
}

// changed reports whether the file holds something else than when it was marked, and
// marks it. One that is being written or replaced is let come to rest: only what two
// looks find the same counts. So a file is reported once as it is, or as missing.
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

// again reports whether the file can be read more than once: a pipe cannot.
func (f *watchedFile) again() bool { return f.seen.info == nil || f.seen.info.Mode().IsRegular() }

// content is a sum of what the file holds; nil when it cannot be read, or but once.
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
