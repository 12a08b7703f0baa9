package redisstore

import "context"

// The format of a ledger that this version writes, and the one that it converts.
const (
	ledgerFormat = "2"
	olderFormat  = "1"
)

// isOlderFormat reports whether a script found a ledger that is to be converted first.
func isOlderFormat(reply []any) bool {
	return len(reply) == 3 && replyHead(reply[:2]) && number(reply[0]) == statusNewer && text(reply, 2) == olderFormat
}

// convert converts a ledger of the older format; one of any other it leaves as it is.
func (s *Store) convert(ctx context.Context, name string) error {
	doing := "convert the ledger of " + name
	reply, err := s.run(ctx, s.scripts.Convert, append(s.allKeys(name, maxLimits), s.key(name, "x")), arguments(ledgerArgs{})...).Result()
	if err != nil {
		return s.fault(doing, err)
	}
	format, ok := reply.(string)
	switch {
	case !ok:
		return s.strange(doing, reply)
	case format != "" && format != ledgerFormat:
		return s.newer(name, format)
	}
	return nil
}
