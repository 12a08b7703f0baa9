package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// A store that answers, but not to this daemon, ends it: nothing that it would
// log every tick could ever get better.
func TestTheDaemonRefusesAStoreItCannotUse(t *testing.T) {
	server := miniredis.RunT(t)
	server.RequireAuth("something else")
	for _, args := range [][]string{{"run"}, {"run", "--once"}} {
		p := newProgram(t, "https://upstream.invalid", append(args, "--store", "redis://"+server.Addr()+"/0")...)
		p.rewrite(fmt.Sprintf(daemonConfig, "https://upstream.invalid"))
		p.start()
		p.exits(exitUsage)
		p.logged(`(?m)^quotactl: .*not usable as configured`)
	}
}

// A server that is not there yet is waited for; the daemon then runs as ever.
func TestTheDaemonStartsBeforeItsStore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	p := startProgram(t, "https://upstream.invalid", "run", "--store", server.URL(0))
	p.logged(`level=ERROR msg="the store is out of reach`)
	must.Equal(t, server.Start(), true, "the server starts")
	p.logged(`msg="the store is within reach again"(.|\n)*msg=job job=trending`)
	p.signal(syscall.SIGTERM)
	p.exits(exitDone)
}
