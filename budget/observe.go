package budget

import "errors"

// The modes of a limit or an upstream, as costs.toml writes them.
const (
	ModeEnforce = "enforce"
	ModeObserve = "observe"
)

// ModeText is the mode in one word.
func ModeText(observe bool) string {
	if observe {
		return ModeObserve
	}
	return ModeEnforce
}

// observing turns a refusal into a receipt with SourceNone if the upstream is in observe
// mode, because that mode must not stop calls. ErrFenced stays an error: another pass
// does the work.
func (b *Budget) observing(receipt Receipt, err error) (Receipt, error) {
	if err == nil || !b.spec.Observe {
		return receipt, err
	}
	var refused *RefusedError
	if !errors.As(err, &refused) || errors.Is(err, ErrFenced) {
		return receipt, err
	}
	return Receipt{
		Budget: refused.Budget, Operation: refused.Operation, ID: refused.ID, Units: refused.Units,
		At: b.now().UTC(), Observed: refused.word(), Source: SourceNone,
	}, nil
}

// word names a refusal's reason in one or two words.
func (e *RefusedError) word() string {
	if e.Limit != "" {
		return e.Limit
	}
	return e.Err.Error()
}
