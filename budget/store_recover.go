package budget

// Recovery is what a caller saw of a budget before data was lost.
type Recovery struct {
	Budget string
	Now    int64   // the caller's wall clock in µs, a witness
	Limits []Limit // all of the budget, as in Batch
	Used   []int64 // what each had used; below 0: not seen
	At     int64   // when it was seen, µs on the store's clock
	Newest Acknowledged
}

// Recovered is the answer to a Recovery.
type Recovered struct {
	Now int64 // the clock that frees, not clamped
	// Amounts is what stands recovered in each limit now, in what it counts; of a
	// bucket what was added.
	Amounts []int64
	// Anew: the ledger was damaged and was begun anew.
	Anew bool
}
