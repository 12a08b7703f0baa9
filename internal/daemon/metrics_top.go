package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotactl/quotactl/budget"
)

const (
	// mostTop bounds the series of budgets of credentials "*".
	mostTop = 20
	// topAgain is how long a scrape reuses what an earlier one read, which may be of thousands of
	// budgets, and topTakes bounds that reading.
	topAgain = time.Minute
	topTakes = 5 * time.Second
)

// topCollector shows what is left of the fullest budgets of credentials "*".
type topCollector struct {
	left *prometheus.Desc

	mu   sync.Mutex // guards all below
	read func(ctx context.Context, n int) ([]budget.Status, error)
	seen []budget.Status
	at   time.Time // when seen was read; zero: never
}

func newTopCollector() *topCollector {
	return &topCollector{left: prometheus.NewDesc("quotactl_top_left_ratio", "What part is left of the tightest limit of the fullest budgets of credentials \"*\", 0 to 1.", []string{"budget", "limit"}, nil)}
}

// follow makes the collector read by read from now on.
func (c *topCollector) follow(read func(ctx context.Context, n int) ([]budget.Status, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = read
}

// Describe implements prometheus.Collector.
func (c *topCollector) Describe(to chan<- *prometheus.Desc) { to <- c.left }

// Collect implements prometheus.Collector. It leaves out all if they cannot be read in time.
func (c *topCollector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read != nil && (c.at.IsZero() || time.Since(c.at) >= topAgain) {
		ctx, cancel := context.WithTimeout(context.Background(), topTakes)
		defer cancel()
		c.seen, _ = c.read(ctx, mostTop) // breaker_open and store_seconds show a store that is away
		c.at = time.Now()
	}
	for _, status := range c.seen {
		if t := status.Tightest(); t.Refuses() {
			to <- prometheus.MustNewConstMetric(c.left, prometheus.GaugeValue, t.Part(), status.Budget, t.Name)
		}
	}
}
