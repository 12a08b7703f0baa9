package limit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// NoShares is the digest of limits without shares.
const NoShares = "none"

// DigestShares is a digest of how limits are divided, in 16 hexadecimal digits, or NoShares.
// It is the same for two lists whose divided limits have the same names and shares, in
// whatever order limits, shares and jobs come.
func DigestShares(limits []Limit) string {
	type divided struct {
		Limit  string
		Shares []Share
	}
	var list []divided
	for _, l := range limits {
		if len(l.Shares) > 0 {
			shares := slices.Clone(l.Shares)
			for i := range shares {
				shares[i].Jobs = slices.Sorted(slices.Values(shares[i].Jobs))
			}
			slices.SortFunc(shares, func(a, b Share) int { return strings.Compare(a.Name, b.Name) })
			list = append(list, divided{l.Name, shares})
		}
	}
	if len(list) == 0 {
		return NoShares
	}
	slices.SortFunc(list, func(a, b divided) int { return strings.Compare(a.Limit, b.Limit) })
	text, err := json.Marshal(list)
	if err != nil { // these types always can be
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
