package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// findings reports the sentinels, and after which time they replace a master that does not
// answer; 0 if no sentinel says.
func (s *sentinels) findings(ctx context.Context) (replaced time.Duration, list []driver.Finding) {
	words := s.words(ctx)
	masters := map[string][]string{}
	for _, address := range slices.Sorted(maps.Keys(words)) {
		w := words[address]
		if w.err != nil {
			list = append(list, driver.Finding{
				Check: "sentinel", Level: driver.Warning, Says: w.err.Error(),
				Advice: "start it, or take it out of the URL and run SENTINEL RESET on the others: too few sentinels cannot replace a master",
			})
			continue
		}
		masters[w.master] = append(masters[w.master], address)
		ms, _ := strconv.Atoi(w.state["down-after-milliseconds"])
		if after := time.Duration(ms) * time.Millisecond; replaced == 0 || after < replaced {
			replaced = after
		}
		list = append(list, sentinelFinding(address, w))
	}
	if len(masters) > 1 {
		var says []string
		for _, master := range slices.Sorted(maps.Keys(masters)) {
			says = append(says, strings.Join(masters[master], ", ")+" name "+master)
		}
		list = append(list, driver.Finding{
			Check: "sentinel", Level: driver.Fault, Says: "the sentinels do not agree on the master: " + strings.Join(says, "; "),
			Advice: "repair the network between them; if they watch different masters, give one of these another name",
		})
	}
	return replaced, list
}

// enoughSentinels is the least number that can lose one and still have a majority.
const enoughSentinels = 3

func sentinelFinding(address string, w word) driver.Finding {
	others, _ := strconv.Atoi(w.state["num-other-sentinels"])
	quorum, _ := strconv.Atoi(w.state["quorum"])
	all := strconv.Itoa(others + 1)
	f := driver.Finding{Check: "sentinel", Level: driver.OK, Says: fmt.Sprintf("%s names the master %s, and knows %s; %d of them must find it down", address, w.master, plural(all, "sentinel"), quorum)}
	switch {
	case others+1 < enoughSentinels:
		f.Level, f.Advice = driver.Warning, "run three, each on its own machine: most of the sentinels must agree to replace a master, so with fewer than three none may fail"
		if others == 0 {
			f.Advice = "run three, each on its own machine: a lone one that fails replaces no master, and one that is cut off replaces a master that works"
		}
	case quorum < 2:
		f.Level, f.Advice = driver.Warning, fmt.Sprintf("set the quorum to %d (SENTINEL SET %s quorum %d): with %d a sentinel that is cut off starts a failover of a master that works", (others+1)/2+1, w.state["name"], (others+1)/2+1, quorum)
	}
	return f
}

// words asks all sentinels, including those that only other sentinels name.
func (s *sentinels) words(ctx context.Context) map[string]word {
	select {
	case <-s.follow.look(lookPause): // finds the others
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	asked := s.asked()
	said := make(chan word, len(asked))
	for address, client := range asked {
		go func() { said <- s.askOne(ctx, address, client) }()
	}
	words := map[string]word{}
	for range asked {
		w := <-said
		words[w.from] = w
	}
	return words
}
