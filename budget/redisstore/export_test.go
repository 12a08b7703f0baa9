package redisstore

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/redistest"
)

// SetDialTimeout sets how long connecting may take, before any store is opened.
func SetDialTimeout(d time.Duration) { dialTimeout = d }

// testSnippet reads the clock from the last argument, and moves expiries to
// where they would stand if the server's own clock showed it.
const testSnippet = redistest.Struct + `
local function clock()
  return tonumber(ARGV[#ARGV])
end
local function expiry(ms)
  local t = redis.call('TIME')
  return ms + math.floor((t[1] * 1000000 + t[2] - clock()) / 1000)
end
`

// plainSnippet reads the clock from the last argument too, and leaves expiries where the
// store sets them.
const plainSnippet = redistest.Struct + `
local function clock()
  return tonumber(ARGV[#ARGV])
end
local function expiry(ms)
  return ms
end
`

// OpenWithPlainExpiries is OpenWithClock for a clock that is ahead of the server's.
func OpenWithPlainExpiries(url string, o Options, clock func() int64) (*Store, error) {
	s, err := open(url, o, plainSnippet)
	if err == nil {
		s.testClock = clock
	}
	return s, err
}

// The places of numbers of a ledger's state, as lua/layout.lua lists them.
const (
	StateLast       = 1
	StateOperations = 6
)

// UsualSHA is the name by which the server knows usual.lua.
func UsualSHA(s *Store) string { return s.scripts.Usual.SHA() }

// HistorySHA is the name by which the server knows history_read.lua.
func HistorySHA(s *Store) string { return s.scripts.History.SHA() }

// FieldsAtOnce is roughly how many fields one run of history_read.lua reads.
const FieldsAtOnce = fieldsAtOnce

// OpenWithClock opens a store whose scripts read the given clock, in µs.
func OpenWithClock(url string, o Options, clock func() int64) (*Store, error) {
	s, err := open(url, o, testSnippet)
	if err == nil {
		s.testClock = clock
	}
	return s, err
}

// SetMaxSteps changes how many entries one script run may go through.
func (s *Store) SetMaxSteps(n int) { s.maxSteps = n }

// Client is the store's client, for scripts on the same connections.
func (s *Store) Client() redis.UniversalClient { return s.client.(redis.UniversalClient) }

// VersionFinding tells what an answer to INFO shows of a server's version.
func VersionFinding(addr, info string) driver.Finding { return versionFinding(addr, fields(info)) }

// ClockFinding tells what a difference of the clocks in µs means.
func ClockFinding(ahead int64) driver.Finding { return clockFinding(ahead) }

// NewCluster and Reload are a store's client of a cluster, and a look of it.
var (
	NewCluster = newCluster
	Reload     = reload
)

// Looking reports whether a look for the servers is under way.
func (s *Store) Looking() bool {
	s.follow.mu.Lock()
	defer s.follow.mu.Unlock()
	select {
	case <-s.follow.ended:
		return false
	default:
		return true
	}
}

// ForgetPlans has the next decision of each budget made by charge.lua.
func (s *Store) ForgetPlans() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.plans)
}
