// Package discord_test meters github.com/bwmarrin/discordgo, which sends a refused
// request again until it goes through: after the retry_after of the body, or at once.
package discord_test

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
)

// refusing is a session whose budget has nothing left for a while.
type refusing struct {
	*discordgo.Session
	transport *budgethttp.Transport
	deaf      bool // what the body of a refusal tells does not arrive
	sent      int
	refused   int
}

const window = 8 * time.Second

func newRefusing(t testing.TB) *refusing {
	t.Helper()
	store := memstore.New(func() int64 { return time.Now().UnixMicro() })
	b, err := budget.New(store, budget.Spec{
		Name: "discord/bot", Costs: map[string]budget.Cost{"message": {Units: 1}},
		Limits: []limit.Limit{{Name: "limit", Limit: 1, Counts: limit.CountCalls, Window: limit.RollingWindow(window)}},
	}, budget.WithClosers(store))
	must.Do(t, err)
	t.Cleanup(func() { _ = b.Close() })
	must.Get(b.Charge(t.Context(), budget.Call{Operation: "message"}))(t)
	r := &refusing{}
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		r.sent++
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"id":"1"}`)), Request: req}, nil
	})
	if r.transport, err = budgethttp.New(b, budgethttp.Options{Base: base, Operation: "message", Refused: budgethttp.Answer429}); err != nil {
		t.Fatal(err)
	}
	if r.Session, err = discordgo.New("Bot secret"); err != nil {
		t.Fatal(err)
	}
	r.Session.Client = &http.Client{Transport: roundTrip(r.count)}
	return r
}

// count is between the client and the transport.
func (r *refusing) count(req *http.Request) (*http.Response, error) {
	resp, err := r.transport.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests {
		r.refused++
		if r.deaf {
			_ = resp.Body.Close()
			resp.Body = io.NopCloser(strings.NewReader(`{}`))
		}
	}
	return resp, err
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// The client waits for as long as the body of the refusal tells.
func TestRefusalIsUnderstood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, start := newRefusing(t), time.Now()
		must.Get(r.ChannelMessageSend("1", "hello"))(t)
		if took := time.Since(start); took != window || r.refused != 1 || r.sent != 1 {
			t.Errorf("sent %d times after %s and %d refusals", r.sent, took, r.refused)
		}
	})
}

// One that does not hear it asks again and again, and is not refused more than a
// hundred times for all that.
func TestRefusalIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, start := newRefusing(t), time.Now()
		r.deaf = true
		must.Get(r.ChannelMessageSend("1", "hello"))(t)
		if took := time.Since(start).Truncate(time.Millisecond); took != window || r.refused > 100 || r.sent != 1 {
			t.Errorf("sent %d times after %s and %d refusals", r.sent, took, r.refused)
		}
	})
}

// How often such a client is refused in eight seconds, and what of a core that takes.
func BenchmarkRefusalIsIgnored(b *testing.B) {
	for b.Loop() {
		r, before, start := newRefusing(b), used(b), time.Now()
		r.deaf = true
		must.Get(r.ChannelMessageSend("1", "hello"))(b)
		b.ReportMetric(float64(r.refused), "refusals")
		b.ReportMetric(100*float64(used(b)-before)/float64(time.Since(start)), "%core")
	}
}

// used is the processor time of this process.
func used(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
