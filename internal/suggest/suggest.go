// Package suggest finds the word that a mistyped word was meant to be.
package suggest

import (
	"fmt"
	"slices"
)

// DidYouMean is "; did you mean …?" with the known word closest to a mistyped one, or
// empty if none is close.
func DidYouMean(word string, known []string) string {
	if len(word) < 3 {
		return ""
	}
	best, least := "", max(2, len(word)/4+1)
	slices.Sort(known)
	for _, k := range known {
		if d := editDistance(word, k); d < least && k != word {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// editDistance is how many letters must be inserted, removed, changed or swapped with
// their neighbour to turn b into a (optimal string alignment).
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
