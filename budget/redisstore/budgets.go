package redisstore

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// scannedAtOnce is roughly how many keys a server looks at for one answer to SCAN.
const scannedAtOnce = 1000

// Budgets implements driver.Store. It scans the keys of all masters, which needs the right scan.
func (s *Store) Budgets(ctx context.Context, upstream string, most int) ([]string, error) {
	begin, end, _ := strings.Cut(s.key(upstream+"/*", "m"), "*")
	plain := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)
	pattern := plain.Replace(begin) + "*" + end
	var names []string
	scan := func(ctx context.Context, c *redis.Client) error {
		keys := c.Scan(ctx, 0, pattern, scannedAtOnce).Iterator()
		for len(names) < most && keys.Next(ctx) {
			label := strings.TrimSuffix(strings.TrimPrefix(keys.Val(), begin), end)
			names = append(names, upstream+"/"+label)
		}
		return keys.Err()
	}
	if err := s.onMasters(ctx, scan); err != nil {
		return nil, s.fault("list the budgets of "+upstream, err)
	}
	return names, nil
}

// onMasters visits each master that may hold a ledger, one after the other.
func (s *Store) onMasters(ctx context.Context, visit func(context.Context, *redis.Client) error) error {
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		return inTurn(ctx, c.ForEachMaster, visit)
	case *redis.Ring:
		return inTurn(ctx, c.ForEachShard, visit)
	case *redis.Client:
		return visit(ctx, c)
	case *sentinels:
		master, err := c.current(ctx)
		if err != nil {
			return err
		}
		return visit(ctx, master)
	}
	return nil
}
