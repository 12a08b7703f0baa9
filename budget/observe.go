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

// observing makes a refusal a receipt of what nobody counted, where the upstream
// is in observe mode: such a mode must not stop what it watches. A pass that is taken
// for dead is stopped all the same: another does its work.
func (b *Budget) observing(receipt Receipt, err error) (Receipt, error) {
	var refused *RefusedError
	if err == nil || !b.spec.Observe || !errors.As(err, &refused) || errors.Is(err, ErrFenced) {
		return receipt, err
	}
	return Receipt{
		Budget: refused.Budget, Operation: refused.Operation, ID: refused.ID, Units: refused.Units,
		At: b.now().UTC(), Observed: refused.word(), Source: SourceNone,
	}, nil
}

// word tells a refusal in one word or two.
func (e *RefusedError) word() string {
	if e.Limit != "" {
		return e.Limit
	}
	return e.Err.Error()
}
