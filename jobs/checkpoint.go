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

// fetchCheckpoint is how far a fetch run has come, for the next run of its region to
// go on from: the next page, and how much of which file is kept.
type fetchCheckpoint struct {
	// Of identifies what is fetched: a page token of one URL is of no use for another.
	Of string `json:"of"`
	// Tick (µs) is that of the run that began, which its URL may hold.
	Tick  int64  `json:"tick"`
	Token string `json:"token,omitempty"` // of the next page
	// Done: no page is left; only the file lacks its name.
	Done bool `json:"done,omitempty"`
	// Pages have come so far, those that were unchanged too.
	Pages int `json:"pages"`
	// File is the final name in the outputs' folder; its partial one has Size bytes of
	// whole pages.
	File string `json:"file,omitempty"`
	Size int64  `json:"size,omitempty"`
	// Validators are those of the pages so far.
	Validators []validator `json:"validators,omitempty"`
}

// maxToken is the longest page token that is kept, in bytes.
const maxToken = 16 << 10

// keepWait bounds the keeping of a page's checkpoint.
const keepWait = 2 * time.Second

// checkpoints keep how far a run has come; nil where the job has none.
type checkpoints struct {
	behind []byte // the newest, which is not kept yet; nil: it is
	stale  string // a file that is not needed any more once the next one is kept
}

// of is a hash of what a fetch job asks for, which shows no secret and changes with each
// of the texts.
func (f *fetchRun) of(texts ...string) string {
	fetch := f.run.job.Fetch
	texts = append(texts, f.run.job.Budget, f.run.record.Region, fetch.NextParam, fetch.NextFrom, fetch.Items)
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// resume finds where an earlier run was cut, and takes over what it had: the token of
// the page to begin with, and whether any is left. Without a checkpoint that is the
// first. A store that does not say has the run begin anew and keep nothing, so that
// what is kept stays.
func (f *fetchRun) resume(ctx context.Context) (token string, done bool, end *ending) {
	if f.run.job.Checkpoint == 0 || f.run.job.Fetch.NextParam == "" {
		return "", false, nil
	}
	value, err := f.run.held.value(ctx, checkpoint.Key(f.run.record.Region))
	if err != nil {
		f.run.log.Warn("where an earlier run was cut is not known; beginning anew, without checkpoints", "error", err)
		return "", false, nil
	}
	f.kept = &checkpoints{}
	from, why := f.readCheckpoint(value)
	if from == nil {
		if why == "" {
			return "", false, nil
		}
		f.run.log.Info("beginning anew: "+why, "checkpoint", "removed")
		_, end := f.put(ctx, keepWait, map[string][]byte{checkpoint.Key(f.run.record.Region): nil})
		return "", false, end
	}
	return f.goOn(from)
}

// readCheckpoint is the checkpoint to go on from; nil, and why there is none.
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
		return nil, "the checkpoint is a program's"
	case value.Expired(f.run.now()):
		return nil, "the checkpoint has expired"
	case from.Of != f.of(f.run.job.Fetch.URL):
		return nil, "the checkpoint is of another url"
	case f.output.isThere(from.File):
		return nil, "the run with the checkpoint had come to its end"
	}
	return from, ""
}

// goOn takes over what the earlier run had.
func (f *fetchRun) goOn(from *fetchCheckpoint) (token string, done bool, end *ending) {
	most := f.run.job.Fetch.MaxPages
	done = from.Done || most > 0 && from.Pages >= most
	if done && from.Size == 0 { // as where all pages were unchanged
		f.run.log.Info("beginning anew: all pages were fetched, and left nothing to go on with", "pages", from.Pages)
		return "", false, nil
	}
	took, err := f.output.takeOver(from.File, from.Size)
	switch {
	case !took && done: // nothing is left, and nothing is there
		f.run.log.Warn("beginning anew: all pages were fetched, but their file is not here", "file", from.File+partialSuffix, "error", err)
		return "", false, nil
	case !took:
		f.run.log.Warn("the file of the pages before is not here: they are not in this run's", "file", from.File+partialSuffix, "pages", from.Pages, "error", err)
	default:
		f.kept.stale = from.File
		f.fresh = from.Validators // else the pages that they are of would be nowhere
	}
	f.run.record.Resumed, f.before, f.asOf = true, from.Pages, time.UnixMicro(from.Tick).UTC()
	f.run.log.Info("resumed", "pages", from.Pages, "began", formatTick(f.asOf))
	return from.Token, done, nil
}

// refuses reports whether an upstream does not know the page that a run went on
// with, or that an unchanged page was followed by when it was fetched.
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

// startAnew forgets what the run went on from, and what is known of pages. The file of
// the earlier run stays. Where the store does not let go of a checkpoint that names
// this run's file, the run ends as it was refused.
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
	f.run.log.Warn("beginning anew: the upstream does not know the page any more", "page", f.number(), "reason", refused.reason)
	f.run.record.Resumed, f.run.record.Pages, f.run.record.Unchanged = false, 0, 0
	f.before, f.asOf, f.known, f.fresh, f.guessed = 0, f.run.tick, nil, nil, false
	if err := f.output.restart(); err != nil {
		return failed(ReasonOutput, err)
	}
	return nil
}

// advance makes the pages so far safe on disk, and then the next run go on after
// them. A store that does not answer leaves it behind, and the run goes on. The
// ending is that of a pass whose claim is gone, or of a disk.
func (f *fetchRun) advance(ctx context.Context, next string) *ending {
	if f.kept == nil {
		return nil
	}
	if err := f.output.flush(); err != nil {
		return failed(ReasonOutput, err)
	}
	if len(next) > maxToken || f.holds(next) {
		f.run.log.Warn("no checkpoint is kept after this page: the next one's token is too long, or holds the secret", "page", f.number()-1)
		return nil
	}
	own, err := json.Marshal(fetchCheckpoint{
		Of: f.of(f.run.job.Fetch.URL), Tick: f.asOf.UnixMicro(), Token: next, Done: next == "", Pages: f.before + f.run.record.Pages + f.run.record.Unchanged,
		File: f.output.name, Size: f.output.size, Validators: withinCheckpoint(f.fresh),
	})
	if err != nil {
		return failed(ReasonStore, fmt.Errorf("keep a checkpoint: %w", err))
	}
	f.kept.behind = checkpoint.Value{Expires: f.run.now().Add(f.run.job.Checkpoint).UnixMicro(), Fetch: own}.Text()
	return f.catchUp(ctx, keepWait)
}

// catchUp keeps the newest checkpoint, where that is not done.
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
		f.run.log.Warn("a file that is not needed any more was not removed", "error", err)
	}
	f.kept.stale = ""
}

// put keeps values beside the job's document; not so where the store does not answer,
// which is logged. The ending is that of a pass whose claim is gone.
func (f *fetchRun) put(ctx context.Context, wait time.Duration, values map[string][]byte) (kept bool, end *ending) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait) // what was fetched is to be known of
	defer cancel()
	mine, err := f.run.held.keep(ctx, values)
	switch {
	case err != nil:
		f.run.log.Warn("how far the run has come was not kept", "error", err)
		return false, nil
	case !mine:
		return false, fenced()
	}
	return true, nil
}
