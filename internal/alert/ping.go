package alert

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/jobs"
)

const (
	// pingTries is how often a ping is tried, the second time after pingWait, then after twice
	// as long, and so on: over a good minute.
	pingTries = 6
	pingWait  = 2 * time.Second
	// mostPings is how many pings of a job may wait. Beyond it the oldest is given up.
	mostPings = 64
	// mostPingBody is how many bytes the body of a ping has; receivers keep about as many.
	mostPingBody = 10_000
)

// Pinger calls the addresses of jobs when their passes begin and end. It keeps the order of a
// job's pings, and never holds up a pass.
type Pinger struct {
	sender *sender
	log    *slog.Logger
	count  func(job string, result Result)

	mu       sync.Mutex // guards all below
	queues   map[string][]ping
	stopping context.Context
	stop     context.CancelFunc
	working  sync.WaitGroup
}

// ping is a call of a job's address.
type ping struct {
	place  jobs.Ping
	budget string
	word   string // after the path: start, fail, log; empty: success
	body   string
}

// NewPinger makes a Pinger; env is os.LookupEnv, and count is called for each try.
func NewPinger(env func(string) (string, bool), log *slog.Logger, count func(job string, result Result)) *Pinger {
	if env == nil {
		env = os.LookupEnv
	}
	stopping, stop := context.WithCancel(context.Background())
	return &Pinger{sender: newSender(env, nil), log: log, count: count, queues: map[string][]ping{}, stopping: stopping, stop: stop}
}

// Pass calls the address of a pass's job, later. It is for [jobs.Options]: pass has no outcome
// while it begins.
func (p *Pinger) Pass(j *jobs.Job, pass jobs.Record) {
	if j.Ping == (jobs.Ping{}) {
		return
	}
	one := ping{place: j.Ping, budget: j.Budget, word: word(pass.Outcome), body: pingBody(pass)}
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting, working := p.queues[j.Name]
	if len(waiting) >= mostPings {
		waiting = waiting[1:]
		p.count(j.Name, GivenUp)
	}
	p.queues[j.Name] = append(waiting, one)
	if !working {
		p.working.Go(func() { p.work(j.Name) })
	}
}

// word is what an outcome appends to the address, by the rules of healthchecks.io. What is
// neither a success nor a failure is only noted there.
func word(o jobs.Outcome) string {
	switch o {
	case "":
		return "start"
	case jobs.Succeeded:
		return ""
	case jobs.Failed, jobs.TimedOut, jobs.Lost:
		return "fail"
	}
	return "log"
}

// work makes the pings of a job until there are none.
func (p *Pinger) work(job string) {
	for {
		p.mu.Lock()
		waiting := p.queues[job]
		if len(waiting) == 0 {
			delete(p.queues, job)
			p.mu.Unlock()
			return
		}
		next := waiting[0]
		p.queues[job] = waiting[1:]
		p.mu.Unlock()
		p.try(job, next)
	}
}

// try makes one ping, several times if it fails; once the Pinger is closed, only once.
func (p *Pinger) try(job string, one ping) {
	log := p.log.With("job", job, "budget", one.budget, "ping", one.word)
	for try, wait := 1, pingWait; ; try, wait = try+1, 2*wait {
		err := p.sender.ping(context.Background(), job, one)
		switch {
		case err == nil:
			p.count(job, Delivered)
			return
		case try >= pingTries || p.stopping.Err() != nil:
			p.count(job, GivenUp)
			log.Error("a ping was not made; the pass is not affected", "error", err, "tries", try)
			return
		}
		p.count(job, Failed)
		log.Debug("a ping failed; trying again", "error", err, "tries", try)
		pause(p.stopping, wait)
	}
}

// Close makes the pings that wait, each at once, for a few seconds.
func (p *Pinger) Close() {
	p.stop()
	done := make(chan struct{})
	go func() { p.working.Wait(); close(done) }()
	timer := time.NewTimer(stopTakes)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		p.log.Warn("pings were not made before the daemon stopped")
	}
}

func (s *sender) ping(ctx context.Context, job string, one ping) error {
	ctx, cancel := context.WithTimeout(ctx, sendTakes)
	defer cancel()
	address := one.place.URL
	if address == "" {
		var err error
		if address, err = readSecret(s.env, one.place.Env, one.place.File, "the ping address of job "+job); err != nil {
			return err
		}
	}
	to, err := parseAddress(address)
	if err != nil {
		return fmt.Errorf("ping of job %s: %w", job, err)
	}
	if one.word != "" {
		to = to.JoinPath(one.word)
	}
	return s.post(ctx, to, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, []byte(one.body))
}

// pingBody says how a pass ended, with the last lines of each run that is not complete.
func pingBody(pass jobs.Record) string {
	if pass.Outcome == "" {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "pass of %s: %s", instant(pass.Tick.Time), pass.Outcome)
	if pass.Reason != "" {
		fmt.Fprintf(&b, " (%s)", pass.Reason)
	}
	if pass.Unknown {
		b.WriteString(", units not known\n")
	} else {
		fmt.Fprintf(&b, ", %d units\n", pass.Units)
	}
	if pass.Error != "" {
		b.WriteString(pass.Error + "\n")
	}
	for _, run := range pass.Runs {
		if run.Outcome == jobs.Succeeded {
			continue
		}
		if run.Region != "" {
			b.WriteString(run.Region + ": ")
		}
		fmt.Fprintf(&b, "%s (%s)", run.Outcome, run.Reason)
		if run.Error != "" {
			b.WriteString(": " + run.Error)
		}
		b.WriteString("\n")
		for _, line := range run.Log {
			b.WriteString("  " + line + "\n")
		}
	}
	text := b.String()
	if len(text) > mostPingBody { // the end says what went wrong last
		text = strings.ToValidUTF8(text[len(text)-mostPingBody:], "")
	}
	return text
}
