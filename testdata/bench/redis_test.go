// Package bench measures decisions beside what others decide with, in one run. It is a
// module of its own, since the peers are no dependencies of quotactl.
package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/redistest"
)

// The yardsticks of Redis.
const (
	empty = "peer=empty"
	rate  = "peer=redis_rate"
)

// BenchmarkRedis has everything that decides on Redis take turns. Run it with -benchtime
// 1x: the rounds are its own. Its rows are:
//
//	decide/…   one charge a script run: Store.Decide of one item
//	batch/…    128 charges a script run: Store.Decide of 128 items, from two goroutines
//	charge/…   Budget.Charge, which decides together what waits together
//	peer=…     what it is measured beside
func BenchmarkRedis(b *testing.B) {
	server := redistest.Start(b)
	for db, goroutines := range []int{1, 16, 64, 256} {
		url, client := server.URL(db), peerClient(server.Addr, db)
		b.Cleanup(func() { _ = client.Close() })
		g := group{goroutines: goroutines, client: client, yardsticks: yardsticks(), contenders: peers(client)}
		if goroutines < 256 {
			for _, s := range shapes(b) {
				g.contenders = append(g.contenders, single(b, url, s))
			}
		}
		if goroutines == 64 {
			for _, s := range batches() {
				g.contenders = append(g.contenders, together(b, url, s))
			}
		}
		for _, limits := range []int{1, 3} {
			name := fmt.Sprintf("charge/limits=%d", limits)
			do := charging(b, openRedis(b, url, redisstore.Options{}), limits, fmt.Sprint("charge", limits))
			g.contenders = append(g.contenders, contender{name: name, per: 1, do: do})
		}
		g.run(b)
	}
}

func yardsticks() []yardstick {
	return []yardstick{{name: empty, as: "of-empty"}, {name: rate, as: "of-redis_rate"}}
}

// single has the store decide one item a call.
func single(b *testing.B, url string, s shape) contender {
	d := newDecider(b, url, s, "decide-"+named(s.name))
	return contender{
		name: "decide/" + s.name, per: 1, warm: s.warm, against: s.against, as: s.as,
		do: func(ctx context.Context) error { return d.decide(ctx, 1) },
	}
}

// together has the store decide as many items a call as it does at most, from as few
// goroutines as keep it busy.
func together(b *testing.B, url string, s shape) contender {
	d := newDecider(b, url, s, "batch-"+named(s.name))
	return contender{
		name: "batch/" + s.name, per: driver.MaxBatch, goroutines: 2,
		do: func(ctx context.Context) error { return d.decide(ctx, driver.MaxBatch) },
	}
}

// named is a row's name as a credential's.
func named(row string) string { return strings.NewReplacer("=", ".", "/", ".").Replace(row) }
