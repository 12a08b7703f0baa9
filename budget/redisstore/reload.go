package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// newCluster makes the client of a cluster, for [reload].
func newCluster(o *redis.ClusterOptions) *redis.ClusterClient {
	c := redis.NewClusterClient(o)
	c.OnNewNode(func(node *redis.Client) { node.AddHook(reloadHook{}) })
	return c
}

// reload has a client of [newCluster] ask a node who serves which slots. The client
// chooses the nodes, and may begin with one that does not answer; so it is asked again
// soon, unless no node was late: they would say the same at once.
func reload(ctx context.Context, c *redis.ClusterClient) {
	for round := firstRound; ctx.Err() == nil; round *= 2 {
		asked, cancel := context.WithTimeout(ctx, round)
		var h heard
		// Its visits begin with a reload.
		_ = c.ForEachMaster(context.WithValue(asked, heardKey{}, &h), func(context.Context, *redis.Client) error { return nil })
		if !h.told && h.late {
			<-asked.Done() // a connection's timeout may come long before it
		}
		cancel()
		if h.told || !h.late {
			return
		}
	}
}

// heard is what nodes said to one reload; the client does not tell.
type heard struct {
	told bool // one told who serves which slots
	late bool // one was reached, or being reached, and did not answer in time
}

// heardKey is the context's key of a [*heard].
type heardKey struct{}

// reloadHook notes what nodes said in the [heard] of a context.
type reloadHook struct{}

func (reloadHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (reloadHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (reloadHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if h, _ := ctx.Value(heardKey{}).(*heard); h != nil && cmd.Name() == "cluster" {
			h.told = h.told || err == nil
			// A node that could not be reached lately is not tried anew: known at once.
			h.late = h.late || timedOut(err) && !notConnected(err)
		}
		return err
	}
}
