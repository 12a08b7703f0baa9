package view

import (
	"cmp"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/internal/screen"
)

// block is a part of a text, such as what there is to say of a limit.
type block struct {
	head string // is shown above the first of those that have it; empty: none
	text string
	rank float64 // the lower, the more it matters
}

// reserved is how many lines of a screen a text leaves free: for what is said below it, and the
// next prompt.
const reserved = 4

// fit is the blocks that matter most of those that a terminal has lines for beside the text around
// them, in their order, and how many are left out. It shows at least the given number. A pipe, and
// a reader who asks for all, gets all.
func fit(on screen.Screen, all bool, around string, list []block, least int) (out string, left int) {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	if on.Terminal && !all {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(list[a].rank, list[b].rank) })
		room := on.Height - reserved - strings.Count(around, "\n")
		heads := map[string]bool{}
		for n, at := range order {
			one := list[at]
			if room -= strings.Count(one.text, "\n"); !heads[one.head] {
				room -= strings.Count(one.head, "\n")
			}
			if heads[one.head] = true; room < 0 && n >= least {
				for _, rest := range order[n:] {
					if list[rest].text != "" {
						left++
					}
				}
				order = order[:n]
				break
			}
		}
		slices.Sort(order)
	}
	last := ""
	for _, at := range order {
		if one := list[at]; one.head != last {
			last, out = one.head, out+one.head
		}
		out += list[at].text
	}
	return out, left
}
