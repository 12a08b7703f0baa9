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

// reload has a client of [newCluster] ask a node which node serves which slots. The client
// chooses the nodes, and may begin with one that does not answer. So reload asks again
// soon, unless no node was late: they would all answer the same again.
func reload(ctx context.Context, c *redis.ClusterClient) {
	for round := firstRound; ctx.Err() == nil; round *= 2 {
		asked, cancel := context.WithTimeout(ctx, round)
		var h heard
		// ForEachMaster begins with a reload.
		_ = c.ForEachMaster(context.WithValue(asked, heardKey{}, &h), func(context.Context, *redis.Client) error { return nil })
		if !h.told && h.late {
			<-asked.Done() // the client may have returned long before
		}
		cancel()
		if h.told || !h.late {
			return
		}
	}
}

// heard is the outcome of one reload, which the client does not return.
type heard struct {
	told bool // a node answered
	late bool // a node did not answer, or connect, in time
}

// heardKey is the context's key of a [*heard].
type heardKey struct{}

// reloadHook notes nodes' answers in the [heard] of a context.
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
			// The client does not dial a node again that it could not reach lately.
			h.late = h.late || timedOut(err) && !notConnected(err)
		}
		return err
	}
}
