package sqlitestore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/linear"
	"github.com/quotactl/quotactl/internal/must"
)

// linearChild carries the orders of a process that asks the store for a client.
const linearChild = "QUOTACTL_SQLITE_LINEAR"

// linearOrders say which file, and which known fault the process puts before it.
type linearOrders struct {
	Path  string
	Fault string
}

// linearAsk is one line to the process. It answers with one line, or, told to
// die, kills itself when the store has answered.
type linearAsk struct {
	Op  linear.Op
	Die bool
}

var linearLimits = linear.Limits(250, 5)

var linearFaults = map[string]func(driver.Store) driver.Store{
	"":        func(s driver.Store) driver.Store { return s },
	"no ids":  linear.WithoutIDs,
	"lagging": linear.Lagging,
}

// answerForLinear is the life of such a process.
func answerForLinear(text string) error {
	var o linearOrders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	opened, err := sqlitestore.Open(context.Background(), o.Path, sqlitestore.Options{Timeout: patience})
	if err != nil {
		return err
	}
	store := linearFaults[o.Fault](opened)
	lines, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var ask linearAsk
		if err := lines.Decode(&ask); errors.Is(err, io.EOF) {
			return opened.Close()
		} else if err != nil {
			return err
		}
		answer, err := linear.Ask(store, linearLimits, ask.Op, patience)
		if err != nil {
			return err
		}
		if ask.Die {
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				return err
			}
			select {}
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}

// linearClient asks through a process, and starts another one when that was
// killed.
type linearClient struct {
	orders string
	rng    *rand.Rand
	deaths *atomic.Int64
	heals  *atomic.Bool

	cmd     *exec.Cmd
	stderr  strings.Builder
	asks    io.WriteCloser
	answers *json.Decoder
}

func (c *linearClient) start() error {
	c.cmd = exec.Command(os.Args[0], "-test.run=^$")
	c.cmd.Env = append(os.Environ(), linearChild+"="+c.orders)
	c.stderr.Reset()
	c.cmd.Stderr = &c.stderr
	asks, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	answers, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	c.asks, c.answers = asks, json.NewDecoder(answers)
	return c.cmd.Start()
}

// try sends an Op once. Some processes die of it: at any instant, or when the
// store has answered them.
func (c *linearClient) try(op linear.Op) (linear.Answer, error) {
	if c.cmd == nil {
		if err := c.start(); err != nil {
			return linear.Answer{}, err
		}
	}
	fault, after := c.rng.IntN(100), time.Duration(c.rng.IntN(4000))*time.Microsecond
	if c.heals.Load() {
		fault = 100
	}
	if fault < 8 {
		process := c.cmd.Process
		killer := time.AfterFunc(after, func() { _ = process.Kill() }) // an answer may be there first
		defer killer.Stop()
	}
	var answer linear.Answer
	err := json.NewEncoder(c.asks).Encode(linearAsk{Op: op, Die: fault >= 8 && fault < 16})
	if err == nil {
		err = c.answers.Decode(&answer)
	}
	if err == nil {
		return answer, nil
	}
	err = c.end()
	if killed(err) {
		c.deaths.Add(1)
		return linear.Answer{}, nil
	}
	return linear.Answer{}, fmt.Errorf("a process ended unasked: %w: %s", err, c.stderr.String())
}

// killed reports whether a process ended by SIGKILL.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// end waits for the process, which has no more to read.
func (c *linearClient) end() error {
	_ = c.asks.Close() // it may be gone
	err := c.cmd.Wait()
	c.cmd = nil
	return err
}

// linearHistory is one of five processes on one file.
func linearHistory(t *testing.T, fault string, chargesOnly bool) *linear.History {
	t.Helper()
	effort.Processes(t)
	seed := effort.Seed(t)
	orders := must.Get(json.Marshal(linearOrders{filepath.Join(t.TempDir(), "q.db"), fault}))(t)
	var deaths atomic.Int64
	var heals atomic.Bool
	var clients []*linearClient
	for i := range 5 {
		c := &linearClient{orders: string(orders), rng: rand.New(rand.NewPCG(seed, uint64(100+i))), deaths: &deaths, heals: &heals}
		clients = append(clients, c)
		t.Cleanup(func() {
			if c.cmd == nil {
				return
			}
			if err := c.end(); err != nil && !killed(err) { // a kill may come behind the last answer
				t.Errorf("a process ended with %v: %s", err, c.stderr.String())
			}
		})
	}
	h := linear.Run(t, linear.Plan{
		Seed: seed, Clients: len(clients), Ops: 250, Budgets: []string{"up/a", "up/b"}, Limits: linearLimits, ChargesOnly: chargesOnly,
		Try:  func(client int, op linear.Op, _ int) (linear.Answer, error) { return clients[client].try(op) },
		Heal: func() { heals.Store(true) },
	})
	t.Logf("sent %d times, %d with unknown outcome, %d processes killed", h.Tries, h.Unknown, deaths.Load())
	if deaths.Load() < 5 {
		t.Fatal("hardly any process was killed: the test shows nothing")
	}
	return h
}

// Processes on one file, some killed with SIGKILL while the store is at work for
// them or before they could tell its answer.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	linear.Check(t, linearHistory(t, "", false))
}

// What a store without ids would do when answers are lost is seen.
func TestWithoutIDsIsNotLinearizable(t *testing.T) {
	t.Parallel()
	linear.CheckFlagged(t, linearHistory(t, "no ids", true))
}

// And what a status that lags would.
func TestLaggingStatusIsNotLinearizable(t *testing.T) {
	t.Parallel()
	linear.CheckFlagged(t, linearHistory(t, "lagging", false))
}
