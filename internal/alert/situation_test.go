package alert

import (
	"math/rand/v2"
	"testing"

	"github.com/quotactl/quotactl/internal/effort"
)

// However a fact comes and goes, a period has at most one begin and one end, which alternate; and
// a fact that is on at the end of a walk had its alert in its period.
func TestOncePerPeriod(t *testing.T) {
	random := rand.New(rand.NewPCG(effort.Seed(t), 1))
	const length = 100
	for range effort.Of(300, 1500, 5000) {
		anew := random.IntN(2) == 0
		var s situation
		begins, open, last := map[int64]int{}, false, int64(-2*length)
		at := int64(0)
		for range 200 {
			at += 1 + random.Int64N(30)
			f := fact{at: at, anew: anew, until: at + length}
			if anew {
				f.until = (at/length + 1) * length
			}
			switch random.IntN(3) {
			case 0:
				f.on = true
			case 1:
				f.off = true
			}
			var turns []turn
			s, turns = s.step(f)
			for _, turn := range turns {
				if (turn.phase == Begin) == open {
					t.Fatalf("%s at %d though open is %v", turn.phase, turn.at, open)
				}
				open = turn.phase == Begin
				if !open {
					continue
				}
				if begins[turn.at/length]++; anew && begins[turn.at/length] > 1 {
					t.Fatalf("two begins in the period of %d", turn.at)
				}
				if !anew && turn.at-last < length {
					t.Fatalf("begins at %d and %d, in one window", last, turn.at)
				}
				last = turn.at
			}
			if f.on && !s.Open && (last < 0 || anew && begins[at/length] == 0 || !anew && at-last >= length) {
				t.Fatalf("not told at %d, though it is so: %+v", at, s)
			}
			if f.off && s.Open {
				t.Fatalf("open at %d, though it is over", at)
			}
		}
	}
}
