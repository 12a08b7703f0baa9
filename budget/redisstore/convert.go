package redisstore

import "context"

// ledgerFormat is the format of a ledger that this version writes; it converts older ones.
const ledgerFormat = "3"

// holdingFormat is that of a ledger in which a hold was taken once. Programs that know
// no holds must not decide on it: they would spend what is held.
const holdingFormat = "4"

// isFormat reports whether this version reads a format without converting it.
func isFormat(format string) bool { return format == ledgerFormat || format == holdingFormat }

// converts reports whether a format is one that this version converts.
func converts(format string) bool { return format == "1" || format == "2" }

// isOlderFormat reports whether a script found a ledger that is to be converted first.
func isOlderFormat(reply []any) bool {
	return len(reply) == 3 && replyHead(reply[:2]) && number(reply[0]) == statusNewer && converts(text(reply, 2))
}

// convert converts a ledger of an older format; it leaves one of any other format
// unchanged.
func (s *Store) convert(ctx context.Context, name string) error {
	doing := "convert the ledger of " + name
	reply, err := s.run(ctx, s.scripts.Convert, append(s.allKeys(name, maxLimits), s.key(name, "x")), arguments(ledgerArgs{})...).Result()
	if hasCode(err, "DAMAGED") {
		return s.damaged(name, "m has buckets that cannot be read")
	}
	if err != nil {
		return s.fault(doing, err)
	}
	format, ok := reply.(string)
	switch {
	case !ok:
		return s.strange(doing, reply)
	case format != "" && !isFormat(format):
		return s.newer(name, format)
	}
	return nil
}
