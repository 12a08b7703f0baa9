package upstream

import (
	"maps"
	"sync"
)

// Row is the sum of one operation.
type Row struct{ Calls, Units int64 }

// Tally counts by operation. It is safe for concurrent use; the zero value is
// empty.
type Tally struct {
	mu   sync.Mutex // guards rows
	rows map[string]Row
}

// Add counts calls and units of an operation; negative numbers subtract.
func (c *Tally) Add(operation string, calls, units int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows == nil {
		c.rows = map[string]Row{}
	}
	row := c.rows[operation]
	row.Calls += calls
	row.Units += units
	c.rows[operation] = row
}

// Rows are the operations with calls or units.
func (c *Tally) Rows() map[string]Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows := maps.Clone(c.rows)
	maps.DeleteFunc(rows, func(_ string, row Row) bool { return row == Row{} })
	return rows
}

// Of is one operation's row.
func (c *Tally) Of(operation string) Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows[operation]
}

// Calls is the sum of the calls of all operations.
func (c *Tally) Calls() (sum int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, row := range c.rows {
		sum += row.Calls
	}
	return sum
}
