package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/quotactl/quotactl/internal/checkpoint"
)

// fetchCheckpoint is how far a fetch run has come, so that the next run of its region can
// resume: the next page, and how much of which file to keep.
type fetchCheckpoint struct {
	// Of identifies what is fetched: a page token of one URL is of no use for another.
	Of string `json:"of"`
	// Tick (µs) is the tick of the first run; its URL may contain it.
	Tick  int64  `json:"tick"`
	Token string `json:"token,omitempty"` // of the next page
	// Done: all pages were fetched; only the file still lacks its final name.
	Done bool `json:"done,omitempty"`
	// Pages counts the pages so far, including unchanged ones.
	Pages int `json:"pages"`
	// File is the partial file in the outputs' folder, without its suffix: usually the
	// final name. It has Size bytes of whole pages.
	File string `json:"file,omitempty"`
	Size int64  `json:"size,omitempty"`
	// Validators are those of the pages so far.
	Validators []validator `json:"validators,omitempty"`
}

// maxToken is the longest page token that is kept, in bytes.
const maxToken = 16 << 10

// keepWait bounds the write of a page's checkpoint.
const keepWait = 2 * time.Second

// checkpoints holds the checkpoints of a run; nil if the job has none.
type checkpoints struct {
	behind []byte // the newest checkpoint, if it is not stored yet
	stale  string // a file that is no longer needed once the next checkpoint is stored
}

// of hashes what a fetch job asks for. The hash shows no secret and changes with each of
// the texts.
func (f *fetchRun) of(texts ...string) string {
	fetch := f.run.job.Fetch
	texts = append(texts, f.run.job.Budget, f.run.record.Region, fetch.NextParam, fetch.NextFrom, fetch.Items)
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// resume finds the checkpoint of an interrupted run and takes over its pages. It returns
// the token of the page to begin with, empty for the first, and whether all pages were
// already fetched. If the store does not answer, the run starts over and stores no
// checkpoints, so that the one in the store stays.
func (f *fetchRun) resume(ctx context.Context) (token string, done bool, end *ending) {
	if f.run.job.Checkpoint == 0 || f.run.job.Fetch.NextParam == "" {
		return "", false, nil
	}
	value, err := f.run.held.value(ctx, checkpoint.Key(f.run.record.Region))
	if err != nil {
		f.run.log.Warn("the checkpoint could not be read; starting over, without checkpoints", "error", err)
		return "", false, nil
	}
	f.kept = &checkpoints{}
	from, why := f.readCheckpoint(value)
	if from == nil {
		if why == "" {
			return "", false, nil
		}
		f.run.log.Info("starting over: "+why, "checkpoint", "removed")
		_, end := f.put(ctx, keepWait, map[string][]byte{checkpoint.Key(f.run.record.Region): nil})
		return "", false, end
	}
	return f.goOn(from)
}

// readCheckpoint returns the checkpoint to resume from, or nil and the reason why it
// cannot be used; nil and no reason if there is no checkpoint.
func (f *fetchRun) readCheckpoint(text []byte) (from *fetchCheckpoint, why string) {
	if text == nil {
		return nil, ""
	}
	value, err := checkpoint.Read(text)
	from = &fetchCheckpoint{}
	if err == nil && value.Fetch != nil {
		err = json.Unmarshal(value.Fetch, from)
	}
	switch {
	case err != nil:
		return nil, "the checkpoint cannot be read: " + err.Error()
	case value.Fetch == nil:
		return nil, "the checkpoint was written by a program"
	case value.Expired(f.run.now()):
		return nil, "the checkpoint has expired"
	case from.Of != f.of(f.run.job.Fetch.URL):
		return nil, "the checkpoint is for another url"
	case f.output.isThere(from.File):
		return nil, "the run with the checkpoint was complete"
	}
	return from, ""
}

// goOn takes over the pages of the interrupted run.
func (f *fetchRun) goOn(from *fetchCheckpoint) (token string, done bool, end *ending) {
	most := f.run.job.Fetch.MaxPages
	done = from.Done || most > 0 && from.Pages >= most
	if done && from.Size == 0 { // for example because all pages were unchanged
		f.run.log.Info("starting over: all pages were fetched, and there is no data to resume with", "pages", from.Pages)
		return "", false, nil
	}
	took, err := f.output.takeOver(from.File, from.Size)
	switch {
	case !took && done: // nothing left to fetch, and no file
		f.run.log.Warn("starting over: all pages were fetched, but their file is missing here", "file", from.File+partialSuffix, "error", err)
		return "", false, nil
	case !took:
		f.run.log.Warn("the file with the earlier pages is missing here: this run's file will not contain them", "file", from.File+partialSuffix, "pages", from.Pages, "error", err)
	default:
		f.kept.stale = from.File
		f.fresh = from.Validators // without their file, pages that are unchanged would be in no file
	}
	f.run.record.Resumed, f.before, f.asOf = true, from.Pages, time.UnixMicro(from.Tick).UTC()
	f.run.log.Info("resumed", "pages", from.Pages, "began", formatTick(f.asOf))
	return from.Token, done, nil
}

// refuses reports whether the upstream no longer knows a page: the first one of a resumed
// run, or one whose token came from a validator.
func (f *fetchRun) refuses(end *ending) bool {
	if first := f.run.record.Resumed && f.run.record.Pages+f.run.record.Unchanged == 0; !first && !f.guessed || end == nil {
		return false
	}
	switch end.reason {
	case "status 400", "status 404", "status 410", "status 422":
		return true
	}
	return false
}

// startAnew discards the checkpoint and the validators and empties the file. The
// interrupted run's file stays. If the store does not remove a checkpoint that names this
// run's file, the run ends with the refusal.
func (f *fetchRun) startAnew(ctx context.Context, refused *ending) *ending {
	if f.kept != nil {
		kept, end := f.put(ctx, keepWait, map[string][]byte{checkpoint.Key(f.run.record.Region): nil})
		if end != nil {
			return end
		}
		if !kept && f.run.record.Pages+f.run.record.Unchanged > 0 {
			return refused
		}
		f.kept = &checkpoints{}
	}
	f.run.log.Warn("starting over: the upstream no longer knows the page", "page", f.number(), "reason", refused.reason)
	f.run.record.Resumed, f.run.record.Pages, f.run.record.Unchanged = false, 0, 0
	f.before, f.asOf, f.known, f.fresh, f.guessed = 0, f.run.tick, nil, nil, false
	if err := f.output.restart(); err != nil {
		return failed(ReasonOutput, err)
	}
	return nil
}

// advance makes the pages so far safe on disk, and then stores a checkpoint after them.
// If the store does not answer, the checkpoint waits and the run continues. The ending is
// for a lost claim or a disk error.
func (f *fetchRun) advance(ctx context.Context, next string) *ending {
	if f.kept == nil {
		return nil
	}
	if err := f.output.flush(); err != nil {
		return failed(ReasonOutput, err)
	}
	if len(next) > maxToken || f.holds(next) {
		f.run.log.Warn("no checkpoint is stored after this page: the next page's token is too long or contains the secret", "page", f.number()-1)
		return nil
	}
	own, err := json.Marshal(fetchCheckpoint{
		Of: f.of(f.run.job.Fetch.URL), Tick: f.asOf.UnixMicro(), Token: next, Done: next == "", Pages: f.before + f.run.record.Pages + f.run.record.Unchanged,
		File: f.output.stem, Size: f.output.size, Validators: withinCheckpoint(f.fresh),
	})
	if err != nil {
		return failed(ReasonStore, fmt.Errorf("store a checkpoint: %w", err))
	}
	f.kept.behind = checkpoint.Value{Expires: f.run.now().Add(f.run.job.Checkpoint).UnixMicro(), Fetch: own}.Text()
	return f.catchUp(ctx, keepWait)
}

// catchUp stores the newest checkpoint, if it is not stored yet.
func (f *fetchRun) catchUp(ctx context.Context, wait time.Duration) *ending {
	if f.kept == nil || f.kept.behind == nil {
		return nil
	}
	kept, end := f.put(ctx, wait, map[string][]byte{checkpoint.Key(f.run.record.Region): f.kept.behind})
	if kept {
		f.kept.behind = nil
		f.discardStale()
	}
	return end
}

// discardStale removes the file that was taken over, once no checkpoint names it.
func (f *fetchRun) discardStale() {
	if f.kept == nil || f.kept.stale == "" {
		return
	}
	if err := f.output.discard(f.kept.stale); err != nil {
		f.run.log.Warn("a file that is no longer needed was not removed", "error", err)
	}
	f.kept.stale = ""
}

// put stores values beside the job's document. If the store does not answer, it logs that
// and returns false. The ending is for a lost claim.
func (f *fetchRun) put(ctx context.Context, wait time.Duration, values map[string][]byte) (kept bool, end *ending) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait) // even if the run is ending: pages were fetched
	defer cancel()
	mine, err := f.run.held.keep(ctx, values)
	switch {
	case err != nil:
		f.run.log.Warn("the run's progress was not stored", "error", err)
		return false, nil
	case !mine:
		return false, fenced()
	}
	return true, nil
}
