package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/checkpoint"
)

// keptFile is a command's checkpoint: a file that it finds as an earlier run has left
// it, and whose content is kept for the next one. What a program keeps by
// [client.Checkpoint] stands in the same place; a file that it leaves as it is
// changes nothing of that.
type keptFile struct {
	run    *run
	key    string
	folder string // its own, which goes with the run
	last   []byte // what is kept, as far as the file says
	mute   bool   // what was kept is not known, and is left as it is
	lost   bool   // the pass's claim is gone
}

// keepFile hands a command what an earlier run has kept; nil where the job keeps
// nothing. Its verb done is to be called.
func (r *run) keepFile(ctx context.Context) (*keptFile, *ending) {
	if r.job.Checkpoint == 0 {
		return nil, nil
	}
	folder, err := os.MkdirTemp("", "quotactl-")
	if err != nil {
		return nil, failed(ReasonCommand, fmt.Errorf("make a folder for the command's checkpoint: %w", err))
	}
	k := &keptFile{run: r, key: checkpoint.Key(r.record.Region), folder: folder}
	if k.last, err = k.find(ctx); err != nil {
		k.mute = true
		r.log.Warn("what an earlier run has kept is not known; the command begins anew, and nothing is kept of it", "error", err)
	}
	if k.lost {
		k.done()
		return nil, fenced()
	}
	if len(k.last) == 0 {
		return k, nil
	}
	if err := os.WriteFile(k.path(), k.last, 0o600); err != nil {
		return nil, failed(ReasonCommand, errors.Join(fmt.Errorf("hand the command its checkpoint: %w", err), os.RemoveAll(folder)))
	}
	r.record.Resumed = true
	r.log.Info("resumed", "bytes", len(k.last))
	return k, nil
}

// find reads what is kept; none where it has expired, or is no program's.
func (k *keptFile) find(ctx context.Context) ([]byte, error) {
	text, err := k.run.held.value(ctx, k.key)
	if err != nil || text == nil {
		return nil, err
	}
	value, err := checkpoint.Read(text)
	if err != nil {
		k.run.log.Warn("the checkpoint is left aside", "error", err)
		return nil, nil
	}
	if value.Data != nil && value.Expired(k.run.now()) {
		k.run.log.Info("the checkpoint has expired", "checkpoint", "removed")
		return nil, k.put(ctx, nil)
	}
	return value.Data, nil
}

// path is what QUOTACTL_CHECKPOINT names; empty where nothing is kept.
func (k *keptFile) path() string {
	if k == nil {
		return ""
	}
	return filepath.Join(k.folder, "checkpoint")
}

// beat keeps what the file holds, while the command runs. It may be about to write
// the file: an empty one, or none, says nothing yet.
func (k *keptFile) beat(ctx context.Context) {
	if k == nil {
		return
	}
	if err := k.keep(ctx, false); err != nil {
		k.run.log.Warn("the command's checkpoint was not kept; the one before stands", "error", err)
	}
}

// ended keeps what the file holds now that the command has ended; removed or emptied,
// nothing. The ending is that of a pass whose claim is gone.
func (k *keptFile) ended() *ending {
	if k == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.run.hard), finalWriteTimeout)
	defer cancel()
	err := k.keep(ctx, true)
	for errors.Is(err, budget.ErrUnavailable) && waitFor(ctx, finalWriteRetry) == nil {
		err = k.keep(ctx, true)
	}
	if err != nil {
		k.run.log.Warn("the command's checkpoint was not kept; the one before stands", "error", err)
	}
	if k.lost {
		return fenced()
	}
	return nil
}

// done removes the file.
func (k *keptFile) done() {
	if k == nil {
		return
	}
	if err := os.RemoveAll(k.folder); err != nil {
		k.run.log.Warn("the folder of the command's checkpoint was not removed", "error", err)
	}
}

// keep keeps what has changed.
func (k *keptFile) keep(ctx context.Context, final bool) error {
	if k.mute || k.lost {
		return nil
	}
	data, err := readKept(k.path())
	if err != nil || bytes.Equal(data, k.last) || len(data) == 0 && !final {
		return err
	}
	return k.put(ctx, data)
}

// put keeps data, or nothing.
func (k *keptFile) put(ctx context.Context, data []byte) error {
	var text []byte
	if len(data) > 0 {
		text = checkpoint.Value{Expires: k.run.now().Add(k.run.job.Checkpoint).UnixMicro(), Data: data}.Text()
	}
	mine, err := k.run.held.keep(ctx, map[string][]byte{k.key: text})
	if err == nil {
		k.lost, k.last = !mine, data
	}
	return err
}

// readKept reads a command's file, which may be anything; empty where there is none.
func readKept(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what QUOTACTL_CHECKPOINT names: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("what QUOTACTL_CHECKPOINT names is no file"), err)
	}
	data, err := io.ReadAll(io.LimitReader(file, checkpoint.Max+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read what QUOTACTL_CHECKPOINT names: %w", err)
	case len(data) > checkpoint.Max:
		return nil, fmt.Errorf("what QUOTACTL_CHECKPOINT names has more than %d bytes: keep where to go on, not the data", checkpoint.Max)
	}
	return data, nil
}
