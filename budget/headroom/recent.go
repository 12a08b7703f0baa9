package headroom

// recentSeconds is how far back a Recent reaches: longer requests count as a minute.
const recentSeconds = 62

// MaxRequest is the longest request that counts, in µs.
const MaxRequest = int64(60_000_000)

// Recent sums the plain charges of about the last minute by the second. The zero value has
// none.
type Recent struct {
	sums [recentSeconds]int64
	last int64 // the latest second, since the Unix epoch
}

// Add adds what was charged at an instant, in µs.
func (r *Recent) Add(at, amount int64) {
	second := at / 1e6
	if second > r.last {
		for s := max(r.last+1, second-recentSeconds+1); s <= second; s++ {
			r.sums[s%recentSeconds] = 0
		}
		r.last = second
	}
	if second > r.last-recentSeconds {
		r.sums[second%recentSeconds] += amount
	}
}

// Sum is what was charged in the seconds that [from, until) touches, both in µs.
func (r *Recent) Sum(from, until int64) (sum int64) {
	for s := max(from/1e6, r.last-recentSeconds+1); s <= r.last && s*1e6 < until; s++ {
		sum += r.sums[s%recentSeconds]
	}
	return sum
}
