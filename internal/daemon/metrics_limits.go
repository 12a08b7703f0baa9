package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/open"
)

// readAgain is how long a scrape reuses what an earlier one read from the store, so that
// scrapes do not keep the store busy.
const readAgain = 5 * time.Second

// limitCollector reads the use of the limits from the store at each scrape. It leaves out
// what it cannot read within the store's timeout.
type limitCollector struct {
	timeout                           time.Duration
	used, limit, remaining, recovered *prometheus.Desc
	drift, locked, headroom, part     *prometheus.Desc
	left, entries, bytes              *prometheus.Desc
	store                             string // its URL

	shareGuarantee, shareInForce, shareUsed, shareKept, shareBorrowed *prometheus.Desc
	otherShares                                                       *prometheus.Desc

	mu      sync.Mutex // guards all below
	budgets map[string]*budget.Budget
	seen    []budget.Status
	at      time.Time // when seen was read; zero: never
}

func newLimitCollector(timeout time.Duration) *limitCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("quotactl_limit_"+name, help, []string{"budget", "limit"}, nil)
	}
	share := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("quotactl_share_"+name, help, []string{"budget", "limit", "share"}, nil)
	}
	return &limitCollector{
		timeout:        timeout,
		used:           desc("used_units", "How much of a limit is used, in what it counts (units or calls)."),
		limit:          desc("limit_units", "What may be spent of a limit: quota less headroom, or the cap itself."),
		remaining:      desc("remaining_units", "What is left of a limit."),
		recovered:      desc("recovered_units", "How much of the used amount was recorded after the store had lost data."),
		drift:          desc("drift_units", "How much of the used amount the upstream reported and no charge explains."),
		shareGuarantee: share("guarantee_units", "Guarantee of a share of a limit in the configuration, in what the limit counts."),
		shareInForce:   share("in_force_units", "Units of a limit that are guaranteed to a share now: the configured guarantee, less if the limit is lower than all guarantees, 0 once it has lapsed."),
		shareUsed:      share("used_units", "How much the jobs of a share have used of a limit."),
		shareKept:      share("kept_units", "What is guaranteed to a share and not used: no other caller may take it."),
		shareBorrowed:  share("borrowed_units", "What a share has used beyond the guarantee that is in force now."),

		otherShares: prometheus.NewDesc("quotactl_other_shares_seen_seconds", "When a host last charged that divides the limits into other shares than here, in seconds since the Unix epoch; for an hour.", []string{"budget", "host"}, nil),

		headroom: desc("headroom_units", "What is kept back of a limit's quota now, in what the limit counts."),
		part:     prometheus.NewDesc("quotactl_limit_headroom_part_units", "What a part of a limit's automatic headroom asks for: drift, in_flight, clock or outage. Their sum is the headroom, within its minimum and maximum.", []string{"budget", "limit", "part"}, nil),

		left:    prometheus.NewDesc("quotactl_budget_left_ratio", "What part of a budget's tightest limit is left, 0 to 1; 0 while it is locked.", []string{"budget", "limit"}, nil),
		entries: prometheus.NewDesc("quotactl_ledger_entries", "How many entries a budget's ledger holds.", []string{"budget"}, nil),
		bytes:   prometheus.NewDesc("quotactl_store_bytes", "How large the store's file is, with its log.", nil, nil),

		locked: desc("locked_until_seconds", "When the lock on a limit ends, or on the whole budget if limit is empty, in seconds since the Unix epoch."),
	}
}

// follow makes the collector read these budgets from now on.
func (c *limitCollector) follow(budgets map[string]*budget.Budget) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budgets, c.seen, c.at = budgets, nil, time.Time{}
}

// Describe implements prometheus.Collector.
func (c *limitCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.used
	to <- c.limit
	to <- c.remaining
	to <- c.recovered
	to <- c.drift
	to <- c.locked
	to <- c.left
	to <- c.entries
	to <- c.bytes
	to <- c.headroom
	to <- c.part
	to <- c.shareGuarantee
	to <- c.shareInForce
	to <- c.shareUsed
	to <- c.shareKept
	to <- c.shareBorrowed
	to <- c.otherShares
}

// Collect implements prometheus.Collector.
func (c *limitCollector) Collect(to chan<- prometheus.Metric) {
	if size, known := open.Size(c.store); known {
		to <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(size))
	}
	for _, status := range c.read() {
		to <- prometheus.MustNewConstMetric(c.entries, prometheus.GaugeValue, float64(status.Entries), status.Budget)
		for _, l := range status.Limits {
			for desc, value := range map[*prometheus.Desc]int64{c.used: l.Used, c.limit: l.Limit.Limit, c.remaining: l.Remaining, c.recovered: l.Recovered, c.drift: l.Drift} {
				to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), status.Budget, l.Name)
			}
			if l.Quota > 0 {
				to <- prometheus.MustNewConstMetric(c.headroom, prometheus.GaugeValue, float64(l.Headroom), status.Budget, l.Name)
			}
			if l.Parts != nil {
				for _, p := range l.Parts.Named() {
					to <- prometheus.MustNewConstMetric(c.part, prometheus.GaugeValue, float64(p.Amount), status.Budget, l.Name, p.Name)
				}
			}
			for _, s := range l.Shares {
				for desc, value := range map[*prometheus.Desc]int64{c.shareGuarantee: s.Guarantee, c.shareInForce: s.InForce, c.shareUsed: s.Used, c.shareKept: s.Kept, c.shareBorrowed: s.Borrowed} {
					to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), status.Budget, l.Name, s.Name)
				}
			}
		}
		if t := status.Tightest(); t.Refuses() {
			to <- prometheus.MustNewConstMetric(c.left, prometheus.GaugeValue, t.Part(), status.Budget, t.Name)
		}
		last := map[string]float64{}
		for _, o := range status.OtherShares {
			last[o.Host] = max(last[o.Host], float64(o.Last.UnixMicro())/1e6)
		}
		for host, at := range last {
			to <- prometheus.MustNewConstMetric(c.otherShares, prometheus.GaugeValue, at, status.Budget, host)
		}
		for _, lock := range status.Locks {
			to <- prometheus.MustNewConstMetric(c.locked, prometheus.GaugeValue, float64(lock.Until.UnixMicro())/1e6, status.Budget, lock.Limit)
		}
	}
}

// read returns the status of all budgets, at most readAgain old. It reads them all at once.
func (c *limitCollector) read() []budget.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < readAgain {
		return c.seen
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	answers := make(chan *budget.Status, len(c.budgets))
	for _, b := range c.budgets {
		go func() {
			status, err := b.Status(ctx)
			if err != nil { // breaker_open and store_seconds show it
				answers <- nil
				return
			}
			answers <- &status
		}()
	}
	c.seen = nil
	for range c.budgets {
		if status := <-answers; status != nil {
			c.seen = append(c.seen, *status)
		}
	}
	c.at = time.Now()
	return c.seen
}
