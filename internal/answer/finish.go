package answer

// Finish is the JSON answer of settle and release.
type Finish struct {
	Budget   string `json:"budget"`
	ID       string `json:"id"`
	Units    *int64 `json:"units,omitempty"`
	Settled  bool   `json:"settled,omitempty"`
	Released bool   `json:"released,omitempty"`
}
