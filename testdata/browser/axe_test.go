package browser

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed testdata/axe/axe.min.js
var axe string

// violation is a rule of axe that a page breaks.
type violation struct {
	ID    string   `json:"id"`
	Help  string   `json:"help"`
	Nodes []string `json:"nodes"`
}

func (v violation) String() string {
	const most = 3
	more := ""
	if n := len(v.Nodes) - most; n > 0 {
		more = fmt.Sprintf("\n\tand %d more", n)
	}
	return fmt.Sprintf("axe: %s: %s\n\t%s%s", v.ID, v.Help, strings.Join(v.Nodes[:min(most, len(v.Nodes))], "\n\t"), more)
}

// violations runs axe in the page, with the rules of WCAG 2.2 and those for best practice. It is
// evaluated, not loaded, so the page's policy on content does not matter.
func (b *tab) violations() []violation {
	b.t.Helper()
	if !eval[bool](b, "typeof axe === 'object'") {
		eval[bool](b, "%s", axe+";true")
	}
	return eval[[]violation](b, "%s", runAxe)
}

const runAxe = `axe.run(document, {
	resultTypes: ["violations"], preload: false,
	runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}).then(found => found.violations.map(v => ({
	id: v.id, help: v.help,
	nodes: v.nodes.map(n => n.target.join(" ") + ": " + n.html.slice(0, 160) + ": " + [...n.any, ...n.all, ...n.none].map(c => c.message).join("; ")),
})))`
