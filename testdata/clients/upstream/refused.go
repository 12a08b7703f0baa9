package upstream

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// RefusedHere fails the test unless the budget refused with ErrLocked, wrapped in the
// client's own errors, and the error shows no secret ("": the client has none).
func RefusedHere(t *testing.T, err error, limit string, until time.Time, secret string) {
	t.Helper()
	var refused *budget.RefusedError
	var by *url.Error
	switch {
	case !errors.Is(err, budget.ErrLocked) || !errors.Is(err, budget.ErrExhausted) || !errors.As(err, &refused) || !errors.As(err, &by):
		t.Errorf("the error is %v", err)
	case refused.Limit != limit || !refused.RetryAt.Equal(until) || secret != "" && strings.Contains(err.Error(), secret):
		t.Errorf("the error is %v, of %q until %s", err, refused.Limit, refused.RetryAt)
	}
}
