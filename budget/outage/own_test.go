package outage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
)

// What a host charged itself is kept in few stretches, of which the newest are single
// charges and none is long beside its age; what no window counts any more is let go.
func TestStretchesStayFew(t *testing.T) {
	seed := effort.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	const day = int64(24 * time.Hour / time.Microsecond)
	var list []stretch
	var times []int64
	most := 0
	for at := int64(0); len(times) < effort.Of(20_000, 100_000, 400_000); {
		at += 1 + rng.Int64N(day/5000)
		list = append(list, stretch{ID: fmt.Sprint(at), From: at, At: at, Amounts: map[string]int64{"day": 3}})
		times = append(times, at)
		if rng.IntN(20) > 0 {
			continue
		}
		list = thin(list, day)
		most = max(most, len(list))
		for i, s := range list {
			from, _ := slices.BinarySearch(times, s.From)
			to, _ := slices.BinarySearch(times, s.At+1)
			apart, long := len(list)-i <= keptApart, s.At-s.From > max(finestStretch, (at-s.At)/stretchAge)
			if s.Amounts["day"] != 3*int64(to-from) || s.ID != fmt.Sprint(s.At) || apart && to-from > 1 || long || s.At <= at-day {
				t.Fatalf("stretch %d of %d at %d is %+v, of %d charges", i, len(list), at, s, to-from)
			}
			if i > 0 && s.From <= list[i-1].At {
				t.Fatalf("stretch %d is %+v, and the one before %+v", i, s, list[i-1])
			}
		}
	}
	if most > 400 {
		t.Fatalf("there are %d stretches", most)
	}
	t.Logf("%d stretches at most", most)
}

// Charges of two processes are joined once a process that charges has found out that its
// ledger is another, and no sooner.
func TestProcessesAreJoinedLate(t *testing.T) {
	for _, late := range []bool{false, true} {
		var list []stretch
		add := func(at int64) {
			by := []string{"one", "two"}[len(list)%2]
			list = append(list, stretch{ID: fmt.Sprint(at), From: at, At: at, Amounts: map[string]int64{"day": 1}, Ledger: "l", By: by})
		}
		for i := range int64(200) {
			add(i)
		}
		begin := int64(200)
		if late {
			begin += settled
		}
		for i := range int64(keptApart) {
			add(begin + i)
		}
		joined := slices.ContainsFunc(thin(list, 100*settled), func(s stretch) bool { return s.By == "" })
		check.Equal(t, joined, late, "charges of both are joined, late", late)
	}
}
