package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/answer"
)

// charge serves POST /v1/charge.
func (s *Server) charge(w http.ResponseWriter, r *http.Request) {
	buffer := takeBuffer()
	defer buffer.giveBack()
	var q request
	if !buffer.readBody(w, r, chargeMembers, &q) {
		return
	}
	b, err := s.budgets.take(q.budget)
	if err != nil {
		failed(w, err)
		return
	}
	defer s.budgets.giveBack(b)
	if units, ok := q.leasable(&b.spec); ok {
		patient(w, b.spec.Timeout)
		if receipt, ok, err := s.take(r.Context(), b, q.asked.Call.Operation, units); ok {
			s.answer(w, b, &q, buffer, receipt, err)
			return
		}
	}
	if q.asked.Call.ID == "" {
		q.asked.Call.ID, q.asked.Call.NewID = rand.Text(), true // so that every answer, even an error, has the id
	}
	if !q.waits && !q.asked.DryRun {
		longest, _ := b.spec.MaxWait(q.asked.Call.Labels)
		q.wait = min(longest, MaxWait)
	}
	if q.wait > 0 {
		switch taken := s.waiting.take(); {
		case taken:
			defer s.waiting.giveBack()
		case q.waits:
			refuse(w, problem{reason: "busy", detail: "too many requests are waiting for units; try again in a moment, or leave out wait_seconds"})
			return
		default: // only its job makes it wait: decide at once instead
			q.wait = 0
		}
	}
	patient(w, q.wait+b.spec.Timeout)
	receipt, err := s.decide(r.Context(), b.Budget, &q)
	s.answer(w, b, &q, buffer, receipt, err)
}

// answer answers a request for a charge, by way of its buffer.
func (s *Server) answer(w http.ResponseWriter, b *opened, q *request, buffer *buffer, receipt budget.Receipt, err error) {
	answer := answer.NewCharge(&b.spec, q.asked, receipt, late(err))
	if err != nil {
		s.notCharged(w, b, q, answer, err)
		return
	}
	header := w.Header()
	setRateLimit(header, &b.policies, &answer)
	header["Content-Type"] = jsonMedia
	buffer.bytes = append(answer.AppendMembers(append(buffer.bytes[:0], '{')), '}', '\n')
	_, _ = w.Write(buffer.bytes) // an error means that the client has left
}

// decide decides a charge, waiting for units if the request or its job says so.
func (s *Server) decide(ctx context.Context, b *budget.Budget, q *request) (budget.Receipt, error) {
	switch {
	case q.asked.DryRun:
		return b.Would(ctx, q.asked.Call, q.asked.Lease)
	case q.wait == 0:
		return charge(ctx, &q.asked, b.Charge, b.Reserve)
	}
	patience, cancel := context.WithCancel(ctx)
	defer cancel()
	if q.waits || q.wait == MaxWait { // otherwise Wait applies the job's max_wait itself
		var end context.CancelFunc
		patience, end = context.WithTimeout(patience, q.wait)
		defer end()
	}
	defer context.AfterFunc(s.stopping, cancel)()
	receipt, err := charge(patience, &q.asked, b.Wait, b.WaitReserve)
	var refused *budget.RefusedError
	if err != nil && !errors.As(err, &refused) && patience.Err() != nil && ctx.Err() == nil {
		// The wait ended while the store was deciding: ask again with the same id.
		return charge(ctx, &q.asked, b.Charge, b.Reserve)
	}
	return receipt, err
}

// logRefusal logs a charge that was not granted: for whom, why, and when it will fit.
func (s *Server) logRefusal(what string, asked *answer.Asked, given answer.Charge) {
	labels := asked.Call.Labels
	fields := []slog.Attr{
		slog.String("budget", given.Budget), slog.String("operation", given.Operation), slog.String("id", given.ID),
		slog.String("job", labels.Job), slog.String("region", labels.Region), slog.String("run", labels.Run),
		slog.String("reason", given.Reason),
	}
	if given.Units != nil {
		fields = append(fields, slog.Int64("units", *given.Units))
	}
	if given.Limit != "" {
		fields = append(fields, slog.String("limit", given.Limit), slog.Int64("remaining", *given.Remaining))
	}
	if given.Floor > 0 {
		fields = append(fields, slog.Int64("floor", given.Floor))
	}
	if given.Why != "" {
		fields = append(fields, slog.String("locked", given.Why))
	}
	if !given.RetryAt.IsZero() {
		fields = append(fields, slog.String("retry_at", given.RetryAt.UTC().Format(answer.InstantFormat)))
	}
	if given.Remembered {
		fields = append(fields, slog.Bool("remembered", true))
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, what, fields...)
}

// charge calls plainly for a charge without a lease, reserving for one with a lease.
func charge(ctx context.Context, asked *answer.Asked, plainly func(context.Context, budget.Call) (budget.Receipt, error),
	reserving func(context.Context, budget.Call, time.Duration) (*budget.Reservation, error),
) (budget.Receipt, error) {
	if asked.Lease == 0 {
		return plainly(ctx, asked.Call)
	}
	reserved, err := reserving(ctx, asked.Call, asked.Lease)
	if err != nil {
		return budget.Receipt{}, err
	}
	return reserved.Receipt, nil
}

// notCharged answers, and logs, why a call was not charged.
func (s *Server) notCharged(w http.ResponseWriter, b *opened, q *request, answer answer.Charge, err error) {
	var refused *budget.RefusedError
	if !errors.As(err, &refused) && (errors.Is(err, budget.ErrInvalid) || errors.Is(err, budget.ErrTooManyUnits)) {
		q.judge()
		refuse(w, problem{reason: "invalid", detail: q.detail(), faults: q.faults})
		return
	}
	if !q.asked.DryRun {
		what := "not granted" // the id belongs to another call, the client left, or the like
		if errors.Is(err, budget.ErrExhausted) || errors.Is(err, budget.ErrNeverFits) || errors.Is(err, budget.ErrUnavailable) {
			what = "refused"
		}
		s.logRefusal(what, &q.asked, answer)
	}
	if errors.Is(err, budget.ErrExhausted) {
		setRateLimit(w.Header(), &b.policies, &answer)
	}
	refuse(w, problem{reason: answer.Reason, detail: err.Error(), charge: &answer})
}
