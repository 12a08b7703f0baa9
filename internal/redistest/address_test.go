package redistest

import (
	"testing"

	"github.com/quotactl/quotactl/internal/check"
)

// A server whose address another one has does not start: otherwise a test would share the
// other's data, and lose its connections when the other ends.
func TestStartIsNotAnsweredByAnotherServer(t *testing.T) {
	t.Parallel()
	other := Start(t)
	s := &Server{t: t, Addr: other.Addr, dir: t.TempDir()}
	t.Cleanup(s.Kill)
	check.Equal(t, s.Start(), false, "the second server at one address has started")
	check.NoError(t, other.Client().Ping(t.Context()).Err(), "the first")
}

// An address stays its test's own while nothing listens on it, as between a server's end and
// its next start.
func TestFreeAddressesAreHeld(t *testing.T) {
	t.Parallel()
	given := map[string]bool{}
	for range 300 { // of 10,000: at random two would be the same
		address := FreeAddress(t)
		check.Equal(t, given[address], false, address, "was given before")
		given[address] = true
	}
}
