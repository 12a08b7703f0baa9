package alert

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/jobs"
)

// Health is whether an alert's messages arrive. It is part of the JSON of status.
type Health struct {
	Alert string `json:"alert"`
	// Waiting is how many messages are not delivered yet; Failing is how many of them have been
	// tried in vain.
	Waiting int `json:"waiting"`
	Failing int `json:"failing"`
	// Since is when the oldest of the failing was to be delivered, and Error what the last try
	// met.
	Since *jobs.Instant `json:"failing_since"`
	Error string        `json:"error"`
	// GivenUp is how many messages were given up, each after a day, and LastGivenUp when the
	// last one was.
	GivenUp     int64         `json:"given_up"`
	LastGivenUp *jobs.Instant `json:"last_given_up"`
	// lost: the last one was given up not long ago.
	lost      bool
	lastError string
}

// Look reads how the messages of alerts fare, in their order.
func Look(ctx context.Context, state driver.JobStore, alerts []config.Alert) ([]Health, error) {
	list := []Health{}
	if len(alerts) == 0 {
		return list, nil
	}
	names := make([]string, len(alerts))
	for i, a := range alerts {
		names[i] = documentOf(a.Name)
	}
	found, err := state.Jobs(ctx, names)
	if err != nil {
		return nil, err
	}
	for i, a := range alerts {
		r, err := read(a.Name, found[i])
		if err != nil {
			return nil, err
		}
		list = append(list, r.health(a.Name, found[i].Now))
	}
	return list, nil
}

func (r *record) health(alert string, now int64) Health {
	h := Health{Alert: alert, Waiting: len(r.Messages), GivenUp: r.GivenUp}
	for _, p := range r.Messages {
		if p.Tries == 0 {
			continue
		}
		if h.Failing++; h.Since == nil {
			since := jobs.InstantOf(p.Since)
			h.Since = &since
		}
		h.Error = p.Error
	}
	if r.Last != nil {
		at := jobs.InstantOf(r.Last.At)
		h.LastGivenUp, h.lastError = &at, r.Last.Error
		h.lost = now-r.Last.At < shownFor.Microseconds()
	}
	return h
}

// Text says what is wrong, in a line; empty: nothing is.
func (h Health) Text() string {
	switch {
	case h.Failing == 1:
		return fmt.Sprintf("alert %s: a message could not be delivered since %s: %s", h.Alert, h.Since.UTC().Format(time.RFC3339), h.Error)
	case h.Failing > 1:
		return fmt.Sprintf("alert %s: %d messages could not be delivered since %s: %s", h.Alert, h.Failing, h.Since.UTC().Format(time.RFC3339), h.Error)
	case h.lost:
		return fmt.Sprintf("alert %s: a message was given up at %s: %s", h.Alert, h.LastGivenUp.UTC().Format(time.RFC3339), h.lastError)
	}
	return ""
}

// Lines are the texts of those alerts that something is wrong with, each with a line break.
func Lines(list []Health) (text string) {
	for _, h := range list {
		if line := h.Text(); line != "" {
			text += line + "\n"
		}
	}
	return text
}

// Findings say for each alert whether its messages arrive.
func Findings(ctx context.Context, state driver.JobStore, alerts []config.Alert) (list []driver.Finding) {
	all, err := Look(ctx, state, alerts)
	if err != nil {
		return []driver.Finding{{Check: "alerts", Level: driver.Warning, Says: err.Error()}}
	}
	for _, h := range all {
		f := driver.Finding{Check: "alert " + h.Alert, Level: driver.OK, Says: "no message failed to be delivered"}
		if text := h.Text(); text != "" {
			f.Level, f.Says = driver.Warning, text[len("alert "+h.Alert+": "):]
			f.Advice = "the message is tried again for a day; quotactl alert test " + h.Alert + " sends another one, of kind test, and says what goes wrong"
		}
		list = append(list, f)
	}
	return list
}

// Test sends one message as an alert would, once. The error has no secret in it.
func Test(ctx context.Context, env func(string) (string, bool), a config.Alert, at time.Time) error {
	m := newMessage(a.Name, subject{Kind: kindTest}, turn{Begin, at.UnixMicro(), at.UnixMicro(), "This is a test of alert " + a.Name + ". Nothing is wrong."})
	if err := newSender(env, nil).deliver(ctx, a, m); errors.As(err, new(*partlyError)) {
		return fmt.Errorf("alert %s was delivered to some, not to all: %w", a.Name, err)
	} else if err != nil {
		return fmt.Errorf("alert %s was not delivered: %w", a.Name, err)
	}
	return nil
}
