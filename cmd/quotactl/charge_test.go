package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const shopConfig = `
[store]
url = "sqlite:q.db"
timeout = "1m"
[upstream.shop.costs]
"orders.get" = 1
[upstream.shop.limit.daily]
limit  = 2
window = "24h"
[upstream.shop.credential.main]
`

// answer is charge's JSON as a script would read it.
type charged struct {
	Allowed    bool
	Reason     string
	At         time.Time
	RetryAt    time.Time   `json:"retry_at"`
	RetryAfter json.Number `json:"retry_after_seconds"`
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// A refusal tells the exact instant at which the first charge returns, and the
// exact wait until then.
func TestChargeTellsWhenItFits(t *testing.T) {
	config := writeConfig(t, shopConfig)
	charge := func(wantCode int) charged {
		t.Helper()
		stdout, stderr, code := runAt(t, time.Now(), "charge", "shop/main", "orders.get", "--json", "-c", config)
		must.Equal(t, code, wantCode, "exit code", stderr)
		var a charged
		must.Do(t, json.Unmarshal([]byte(stdout), &a))
		return a
	}
	first := charge(exitDone)
	second := charge(exitDone)
	if !second.At.After(first.At) {
		t.Errorf("charged at %v, then at %v; want later", first.At, second.At)
	}
	refused := charge(exitExhausted)
	if want := first.At.Add(24 * time.Hour); refused.Allowed || refused.Reason != "exhausted" || !refused.RetryAt.Equal(want) {
		t.Errorf("refusal %+v, want a retry at %v", refused, want)
	}
	wait, err := time.ParseDuration(refused.RetryAfter.String() + "s")
	if err != nil || !refused.At.Add(wait).Equal(refused.RetryAt) {
		t.Errorf("at %v the wait is %v, error %v; want until %v", refused.At, wait, err, refused.RetryAt)
	}
}

// An interrupted command exits with 130.
func TestChargeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	args := []string{"charge", "shop/main", "orders.get", "--json", "-c", writeConfig(t, shopConfig)}
	check.Equal(t, run(ctx, args, &stdout, &stderr, noEnv), exitInterrupted, "exit code", stderr.String())
	check.Equal(t, must.Get(at(stdout.Bytes(), "reason"))(t), `"interrupted"`, "reason", stdout.String())
}

// An answer that cannot be written is a failure, not a silent success.
func TestChargeUnwritable(t *testing.T) {
	for _, flags := range [][]string{nil, {"--json"}} {
		var stderr bytes.Buffer
		args := append([]string{"charge", "shop/main", "orders.get", "-c", writeConfig(t, shopConfig)}, flags...)
		if code := run(t.Context(), args, fullDisk{}, &stderr, noEnv); code != exitFailed || !strings.Contains(stderr.String(), "disk full") {
			t.Errorf("%v: exit code %d and %q, want %d and the reason", flags, code, stderr.String(), exitFailed)
		}
	}
}

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errDiskFull }

var errDiskFull = errors.New("disk full")
