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

// keptFile is a command's checkpoint: a file that contains what an earlier run left, and
// whose content is stored for the next run. [client.Checkpoint] stores its data in the
// same place; if the program leaves the file unchanged, that data stays.
type keptFile struct {
	run    *run
	key    string
	folder string // removed with the run
	last   []byte // the content that is stored, as far as this file knows
	mute   bool   // the stored value could not be read, and is left unchanged
	lost   bool   // the pass lost its claim
}

// keepFile gives a command what an earlier run stored; nil if the job keeps no
// checkpoints. The caller calls done.
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
		r.log.Warn("the checkpoint could not be read; the command starts over, and no checkpoint is stored", "error", err)
	}
	if k.lost {
		k.done()
		return nil, fenced()
	}
	if len(k.last) == 0 {
		return k, nil
	}
	if err := os.WriteFile(k.path(), k.last, 0o600); err != nil {
		return nil, failed(ReasonCommand, errors.Join(fmt.Errorf("write the command's checkpoint file: %w", err), os.RemoveAll(folder)))
	}
	r.record.Resumed = true
	r.log.Info("resumed", "bytes", len(k.last))
	return k, nil
}

// find reads the stored data; nil if it has expired, or was not written by a program.
func (k *keptFile) find(ctx context.Context) ([]byte, error) {
	text, err := k.run.held.value(ctx, k.key)
	if err != nil || text == nil {
		return nil, err
	}
	value, err := checkpoint.Read(text)
	if err != nil {
		k.run.log.Warn("the checkpoint is ignored", "error", err)
		return nil, nil
	}
	if value.Data != nil && value.Expired(k.run.now()) {
		k.run.log.Info("the checkpoint has expired", "checkpoint", "removed")
		return nil, k.put(ctx, nil)
	}
	return value.Data, nil
}

// path is the value of QUOTACTL_CHECKPOINT; empty if the job keeps no checkpoints.
func (k *keptFile) path() string {
	if k == nil {
		return ""
	}
	return filepath.Join(k.folder, "checkpoint")
}

// beat stores the file's content while the command runs. It ignores a missing or empty
// file: the command may be about to write it.
func (k *keptFile) beat(ctx context.Context) {
	if k == nil {
		return
	}
	if err := k.keep(ctx, false); err != nil {
		k.run.log.Warn("the command's checkpoint was not stored; the previous one stays", "error", err)
	}
}

// ended stores the file's content after the command has ended; if the command removed or
// emptied the file, it removes the checkpoint. The ending is for a lost claim.
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
		k.run.log.Warn("the command's checkpoint was not stored; the previous one stays", "error", err)
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

// keep stores the content if it has changed.
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

// put stores data; without data it removes the checkpoint.
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

// readKept reads a command's file, which may be anything; empty if it does not exist.
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
		return nil, errors.Join(errors.New("what QUOTACTL_CHECKPOINT names is not a regular file"), err)
	}
	data, err := io.ReadAll(io.LimitReader(file, checkpoint.Max+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read what QUOTACTL_CHECKPOINT names: %w", err)
	case len(data) > checkpoint.Max:
		return nil, fmt.Errorf("what QUOTACTL_CHECKPOINT names has more than %d bytes: store where to resume, not the data", checkpoint.Max)
	}
	return data, nil
}
