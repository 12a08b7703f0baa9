package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
)

// saysConfig has one job, and calls of 10 units. A test says more of the store, the
// upstream, its limit and the job.
const saysConfig = `
[store]
%s
[upstream.shop]
%s
[upstream.shop.costs]
"get" = 10
[upstream.shop.limit.all]
%s
[upstream.shop.credential.main]
[job.pull]
budget   = "shop/main"
schedule = "0 0 1 1 *"
%s
[job.pull.fetch]
operation = "get"
url       = "%s"
next_page = { param = "page", from = "next" }
output    = "data/{tick}.ndjson"
`

// saysAsked is what a call says itself; nil: nothing.
type saysAsked struct {
	floor  *int64
	policy budget.Policy
	wait   *time.Duration
}

// saysDone is what became of calls that were made until one was refused.
type saysDone struct {
	granted int
	refusal string // in the words for people
	answer  string // as JSON, where there is one
}

// saysDoor makes calls with the label of the job until one is refused, at most so many.
type saysDoor func(t *testing.T, config string, asked saysAsked, waits bool, most int) saysDone

var saysDoors = map[string]saysDoor{
	"command line": func(t *testing.T, config string, asked saysAsked, _ bool, most int) saysDone {
		return chargeByCommand(t, config, asked, most, noEnv, "--job", "pull")
	},
	"command of the job": func(t *testing.T, config string, asked saysAsked, _ bool, most int) saysDone {
		return chargeByCommand(t, config, asked, most, func(name string) (string, bool) {
			if name == "QUOTACTL_JOB" {
				return "pull", true
			}
			return "", false
		})
	},
	"HTTP": chargeByHTTP,
	"Go":   chargeByGo,
}

func chargeByCommand(t *testing.T, config string, asked saysAsked, most int, env func(string) (string, bool), more ...string) (done saysDone) {
	args := append([]string{"charge", "shop/main", "get", "--json", "-c", config}, more...)
	if asked.floor != nil {
		args = append(args, fmt.Sprint("--floor=", *asked.floor))
	}
	if asked.policy != "" {
		args = append(args, "--on-store-error", string(asked.policy))
	}
	if asked.wait != nil {
		args = append(args, "--wait", asked.wait.String())
	}
	for ; done.granted < most; done.granted++ {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr, env); code != exitDone {
			done.refusal, done.answer = stderr.String(), stdout.String()
			break
		}
	}
	return done
}

func chargeByHTTP(t *testing.T, config string, asked saysAsked, _ bool, most int) (done saysDone) {
	a := &app{stdout: t.Output(), stderr: t.Output(), env: noEnv, now: time.Now, configPath: config}
	cfg, _, err := a.loadConfig()
	must.Do(t, err)
	store := must.Get(a.openStore(t.Context(), cfg))(t)
	defer func() { _ = store.Close() }()
	b := must.Get(a.budget(cfg, store, "shop/main"))(t)
	server := serve.New(serve.Options{Budgets: []*budget.Budget{b}})
	body := map[string]any{"budget": "shop/main", "operation": "get", "job": "pull"}
	if asked.floor != nil {
		body["floor"] = *asked.floor
	}
	if asked.policy != "" {
		body["on_store_error"] = asked.policy
	}
	if asked.wait != nil {
		body["wait_seconds"] = asked.wait.Seconds()
	}
	text := must.Get(json.Marshal(body))(t)
	for ; done.granted < most; done.granted++ {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/charge", bytes.NewReader(text))
		request.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		server.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusOK {
			var problem struct{ Detail string }
			must.Do(t, json.Unmarshal(recorder.Body.Bytes(), &problem))
			done.refusal, done.answer = problem.Detail, recorder.Body.String()
			break
		}
	}
	return done
}

func chargeByGo(t *testing.T, config string, asked saysAsked, waits bool, most int) (done saysDone) {
	b := must.Get(open.Budget(t.Context(), config, "shop/main"))(t)
	defer func() { _ = b.Close() }()
	call := budget.Call{Operation: "get", Labels: budget.Labels{Job: "pull"}, OnStoreError: asked.policy}
	if asked.floor != nil {
		if call.Floor = *asked.floor; call.Floor == 0 {
			call.Floor = budget.NoFloor
		}
	}
	for ; done.granted < most; done.granted++ {
		ctx, charge := t.Context(), b.Charge
		switch {
		case asked.wait != nil && *asked.wait > 0:
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, *asked.wait)
			defer cancel()
			charge = b.Wait
		case asked.wait == nil && waits:
			charge = b.Wait
		}
		if _, err := charge(ctx, call); err != nil {
			var refused *budget.RefusedError
			if !errors.As(err, &refused) {
				t.Fatal(err)
			}
			done.refusal = err.Error()
			break
		}
	}
	return done
}

// chargeByFetch has the job fetch so many pages: the charges that nobody but the job
// says anything of.
func chargeByFetch(t *testing.T, config string, upstream *atomic.Int64) (done saysDone) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"run", "--once", "pull", "--json", "-c", config}, &stdout, &stderr, noEnv); code != exitDone && code != exitFailed {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	return saysDone{granted: int(upstream.Load()), refusal: stdout.String() + stderr.String()}
}

// What a job says of its charges holds for them by whichever way they come, and what a
// call says itself comes first.
func TestJobSays(t *testing.T) {
	floor := func(units int64) saysAsked { return saysAsked{floor: &units} }
	wait := func(span time.Duration) saysAsked { return saysAsked{wait: &span} }
	policy := func(p budget.Policy) saysAsked { return saysAsked{policy: p} }
	const (
		day  = "limit  = 100\nwindow = \"24h\""
		soon = "limit  = 10\nwindow = \"1s\""
		part = "quota    = 100\nheadroom = 50\nwindow   = \"24h\""
		away = "url = \"redis://127.0.0.1:1\"\noutage_allowance = 10"
		late = "the deadline comes before the units are free"
	)
	for _, c := range []struct {
		name, store, upstream, limit, job string
		asked                             saysAsked
		waits                             bool
		most, granted                     int
		says, saysNot                     string
		json                              string
	}{
		{name: "nothing said", limit: day, most: 11, granted: 10, says: "limit all has 0 left;", saysNot: "remain"},
		{name: "floor", limit: day, job: "floor = 60", most: 11, granted: 4, says: "limit all has 60 left, and 60 must remain (the floor of job pull)", json: `"floor":60`},
		{name: "floor, more asked", limit: day, job: "floor = 60", asked: floor(85), most: 11, granted: 1, says: "limit all has 90 left, and 85 must remain (the call's floor)", json: `"floor":85`},
		{name: "floor, 0 asked", limit: day, job: "floor = 60", asked: floor(0), most: 11, granted: 10, says: "limit all has 0 left;", saysNot: "remain"},
		{name: "floor that never fits", limit: day, job: "floor = 90\nneeds = { get = 1 }", asked: floor(91), most: 11, says: "units and the 91 that must remain (the call's floor) exceed limit all", json: `"floor":91`},

		{name: "open", store: away, limit: part, job: `on_store_error = "open"`, most: 3, granted: 1, says: "allowance"},
		{name: "open, closed asked", store: away, limit: part, job: `on_store_error = "open"`, asked: policy(budget.Closed), most: 3, says: "its policy is closed"},
		{name: "closed, above the upstream", store: away, upstream: `on_store_error = "open"`, limit: part, job: `on_store_error = "closed"`, most: 3, says: "its policy is closed"},
		{name: "closed, open asked", store: away, limit: part, job: `on_store_error = "closed"`, asked: policy(budget.Open), most: 3, granted: 1, says: "allowance"},

		{name: "max_wait", limit: soon, job: `max_wait = "1m"`, waits: true, most: 2, granted: 2},
		{name: "max_wait that is too short", limit: day, job: `max_wait = "1m"`, waits: true, most: 11, granted: 10, says: late},
		{name: "max_wait, 0 asked", limit: day, job: `max_wait = "1m"`, asked: wait(0), waits: true, most: 11, granted: 10, says: "fits in", saysNot: late},
		{name: "no wait", limit: day, job: `max_wait = "0s"`, waits: true, most: 11, granted: 10, says: "fits in", saysNot: late},
		{name: "no wait, a minute asked", limit: soon, job: `max_wait = "0s"`, asked: wait(time.Minute), waits: true, most: 2, granted: 2},
	} {
		check := func(t *testing.T, done saysDone, says, saysNot string) {
			if done.granted != c.granted || !strings.Contains(done.refusal, says) || saysNot != "" && strings.Contains(done.refusal, saysNot) {
				t.Errorf("%d calls were granted, then %q; want %d, then %q and not %q", done.granted, done.refusal, c.granted, says, saysNot)
			}
		}
		checkAnswer := func(t *testing.T, done saysDone) {
			if done.answer != "" && (!strings.Contains(unspaced(done.answer), c.json) || c.json == "" && strings.Contains(done.answer, `"floor"`)) {
				t.Errorf("the answer %s, want %q", done.answer, c.json)
			}
		}
		store := c.store
		if store == "" {
			store = "url = \"sqlite:quotactl.db\"\ntimeout = \"1m\""
		}
		for name, door := range saysDoors {
			t.Run(c.name+" by "+name, func(t *testing.T) {
				t.Parallel()
				config := writeConfig(t, fmt.Sprintf(saysConfig, store, c.upstream, c.limit, c.job, "http://127.0.0.1:1"))
				done := door(t, config, c.asked, c.waits, c.most)
				check(t, done, c.says, c.saysNot)
				checkAnswer(t, done)
			})
		}
		if c.asked != (saysAsked{}) || c.store != "" { // a fetch has nobody else to ask; without a store there is no pass
			continue
		}
		t.Run(c.name+" by fetch", func(t *testing.T) {
			t.Parallel()
			var pages atomic.Int64
			upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if page := pages.Add(1); page < int64(c.most) {
					_, _ = fmt.Fprintf(w, `{"next":"%d"}`, page)
				} else {
					_, _ = fmt.Fprint(w, `{}`)
				}
			}))
			defer upstream.Close()
			done := chargeByFetch(t, writeConfig(t, fmt.Sprintf(saysConfig, store, c.upstream, c.limit, c.job, upstream.URL)), &pages)
			check(t, done, strings.TrimSuffix(strings.ReplaceAll(c.says, late, ""), ";"), "") // it waits by itself
		})
	}
}

// unspaced is JSON without blanks between its values.
func unspaced(text string) string { return strings.ReplaceAll(text, `": `, `":`) }

// A program of another language, or of Go, notices a table that it cannot read.
func TestJobSaysNothingReadable(t *testing.T) {
	file := writeConfig(t, fmt.Sprintf(saysConfig, "", "", "limit  = 100\nwindow = \"24h\"", "floor = \"many\"\nmax_wait = 3", "http://127.0.0.1:1"))
	_, err := open.Budget(t.Context(), file, "shop/main")
	var faults config.Errors
	if !errors.As(err, &faults) || len(faults) != 2 || !strings.Contains(err.Error(), "floor") || !strings.Contains(err.Error(), "max_wait") {
		t.Errorf("%v, want both faults", err)
	}
}
