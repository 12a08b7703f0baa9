package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// The results of job_swap.lua.
const (
	swapOther = iota // the document has another version
	swapDone
	swapLate
	swapDamaged
)

// SwapJob implements driver.JobStore. Each swap has an id, by which a retry after a
// lost answer finds that it is done; a late attempt is refused. If more records are to
// be removed than one script run does, further runs continue; what is left then goes
// with the next records.
func (s *Store) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer cancel()
	if err := s.needClock(ctx, jobScope(swap.Job)); err != nil {
		return false, err
	}
	args, texts := argsOf(swap)
	done, more, err := s.swapJob(ctx, swap, args, texts)
	for more && ctx.Err() == nil { // the swap is done, even if old records remain
		_, more, _ = s.swapJob(ctx, swap, args, texts)
	}
	return done, err
}

// swapJob runs job_swap.lua until it has decided. more: there are further records to
// forget.
func (s *Store) swapJob(ctx context.Context, swap driver.JobSwap, args swapArgs, texts []any) (done, more bool, err error) {
	scope, doing, unsure := jobScope(swap.Job), "swap the document of job "+swap.Job, false
	for {
		cmd, maybe := s.attempts(ctx, s.scripts.JobSwap, boxed(s.jobKeys(swap.Job, "s", "k", "h", "r")), func(attempt time.Time) []any {
			args.Deadline = s.serverTimes(scope)(attempt)
			return arguments(args, texts...)
		})
		unsure = unsure || maybe
		reply, err := cmd.Slice()
		if err != nil {
			return false, false, s.fault(doing, err)
		}
		if !isSwapped(any(reply)) {
			return false, false, s.strange(doing, reply)
		}
		at := numberAt(reply, 1)
		switch numberAt(reply, 0) {
		case swapDone:
			s.learnAt(scope, at)
			return true, numberAt(reply, 2) == 1, nil
		case swapOther:
			s.learnAt(scope, at)
			if unsure {
				return false, false, fmt.Errorf("%s in Redis: %w: an answer was lost, and others have swapped it since; read the document to learn whether this swap was done", doing, driver.ErrUnavailable)
			}
			return false, false, nil
		case swapDamaged:
			return false, false, s.damagedJob(swap.Job)
		}
		s.learnAnew(scope, at) // late for this attempt only, or by an outdated offset
		if ctx.Err() != nil {
			return false, false, fmt.Errorf("%s in Redis: %w: out of time", doing, driver.ErrUnavailable)
		}
	}
}

// argsOf are the arguments of a swap with a new id, except the deadline.
func argsOf(swap driver.JobSwap) (args swapArgs, texts []any) {
	args = swapArgs{Version: swap.Version, ID: rand.Text(), Remove: swap.Remove}
	if swap.Remove {
		return args, nil
	}
	args.Put, args.Records, args.Before, args.Most = swap.Text != nil, len(swap.Records), swap.Forget, swap.Most
	texts = []any{swap.Text}
	var removes []any
	for key, value := range swap.Values {
		if value == nil {
			removes = append(removes, key)
			continue
		}
		texts = append(texts, key, value)
		args.Sets++
	}
	args.Removes = len(removes)
	texts = append(texts, removes...)
	for _, record := range swap.Records {
		texts = append(texts, record.At, record.ID, record.Text)
	}
	return args, texts
}
