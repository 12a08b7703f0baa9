// Command quotactl keeps a team inside the quotas of other people's APIs. It
// runs fetch jobs on their schedules, shows what is left of each budget, and
// charges calls for scripts. quotactl --help lists its commands and exit codes.
package main

import (
	"context"
	"io"
	"log"
	"os"

	"github.com/quotactl/quotactl/internal/daemon"
)

func main() {
	if code, first := daemon.AsFirstProcess(); first {
		os.Exit(code)
	}
	log.SetOutput(io.Discard) // net/http writes there what servers send unasked, which may hold secrets
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv))
}
