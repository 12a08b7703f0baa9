package bench

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// peerClient is a client with as many connections and the same options as a store has for
// such an address; see budget/redisstore/client.go.
func peerClient(address string, db int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: address, DB: db, Protocol: 2, MaxRetries: -1, ContextTimeoutEnabled: true, PoolSize: 20, PoolTimeout: time.Minute,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// slidingLog is the plain log that many programs have: a member for each unit, those that
// have left the window removed, the rest counted.
const slidingLog = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local window, limit, units = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local used = redis.call('ZCARD', KEYS[1])
if used + units > limit then
  return {0, limit - used}
end
local score = string.format('%.0f', now)
for i = 1, units do
  redis.call('ZADD', KEYS[1], score, ARGV[4] .. ':' .. i)
end
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
return {1, limit - used - units}
`

// peers are what a decision is measured beside.
func peers(client *redis.Client) []contender {
	script := redis.NewScript("return 1")
	limiter := redis_rate.NewLimiter(client)
	list := []contender{
		{name: empty, per: 1, do: func(ctx context.Context) error { return script.Run(ctx, client, nil).Err() }},
		{name: "peer=PING", per: 1, do: func(ctx context.Context) error { return client.Ping(ctx).Err() }},
		{name: rate, per: 1, do: func(ctx context.Context) error {
			answer, err := limiter.Allow(ctx, "peer", redis_rate.PerHour(1_000_000_000))
			if err == nil && answer.Allowed != 1 {
				err = fmt.Errorf("redis_rate allows %d", answer.Allowed)
			}
			return err
		}},
	}
	log := redis.NewScript(strings.TrimSpace(slidingLog))
	for _, units := range []int{1, 100} {
		key, n := fmt.Sprint("log", units), atomic.Int64{}
		list = append(list, contender{name: fmt.Sprintf("peer=log/units=%d", units), per: 1, do: func(ctx context.Context) error {
			answer, err := log.Run(ctx, client, []string{key}, time.Hour.Microseconds(), 1_000_000_000, units, n.Add(1)).Int64Slice()
			if err == nil && answer[0] != 1 {
				err = fmt.Errorf("the plain log refuses with %d left", answer[1])
			}
			return err
		}})
	}
	return list
}
