package browser

import (
	"fmt"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// wide says what is wrong with the page's width: content that is wider than the window, so that
// the whole page scrolls sideways; "" if nothing is. Whatever the time of day is, times are then
// as long as they get.
func (b *tab) wide(width int64) string {
	b.t.Helper()
	return eval[string](b, `(width => {
		const page = document.documentElement;
		for (const time of document.querySelectorAll("time")) if (time.textContent.includes("(")) time.textContent = "Nov 28, 00:00 (in 23h59m)";
		if (page.clientWidth !== width) return "the page is laid out " + page.clientWidth + " pixels wide, not " + width;
		if (page.scrollWidth <= width) return "";
		const scrolls = el => el && el !== page && (/auto|scroll|hidden/.test(getComputedStyle(el).overflowX) || scrolls(el.parentElement));
		const over = [...document.body.querySelectorAll("*")].filter(el => el.getBoundingClientRect().right > width + 0.5 && !scrolls(el.parentElement));
		return "the page is " + page.scrollWidth + " pixels wide, by " + over.slice(0, 3).map(el => el.outerHTML.slice(0, 160)).join(" | ");
	})(%d)`, width)
}

// stop is where the key Tab leads.
type stop struct {
	Name  string `json:"name"`
	Place int    `json:"place"` // among the page's links and controls; -1: it is none
	Shown bool   `json:"shown"` // it looks different with the focus
}

// prepareStops lists the links and controls that a reader can use, in the page's order.
const prepareStops = `(() => {
	const style = el => { const s = getComputedStyle(el); return [s.outlineStyle, s.outlineWidth, s.outlineColor, s.boxShadow, s.borderColor, s.backgroundColor, s.textDecorationLine, s.stroke, s.strokeWidth].join(";") };
	const name = el => el.tagName.toLowerCase() + " " + JSON.stringify((el.getAttribute("aria-label") || el.innerText || el.textContent || el.value || el.name || "").trim().slice(0, 60));
	const list = () => [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]")]
		.filter(el => !el.disabled && el.tabIndex >= 0 && el.checkVisibility({visibilityProperty: true}) && el.getClientRects().length > 0);
	const start = document.createElement("span"); // from where it was, Tab leads to the first
	start.tabIndex = -1;
	document.body.prepend(start);
	start.focus();
	start.remove();
	window.stopsOfTest = {list, before: list().map(style), style, name};
	return list().map(name);
})()`

// currentStop is where the focus is. The list is a new one: a live update replaces elements.
const currentStop = `(() => {
	const {list, before, style, name} = window.stopsOfTest, el = document.activeElement, place = list().indexOf(el);
	if (!el || el === document.body) return {name: "", place: -1, shown: false};
	return {name: name(el), place, shown: place >= 0 ? style(el) !== before[place] : true};
})()`

// stops says what is wrong with the way that Tab leads through the page: it reaches each link
// and control, in the page's order, and shows where it is.
func (b *tab) stops() (faults []string, reached int) {
	b.t.Helper()
	want := eval[[]string](b, prepareStops)
	next := 0
	for range 2*len(want) + 20 { // a table that scrolls sideways takes the focus too
		if next == len(want) {
			return faults, next
		}
		b.do(chromedp.KeyEvent(kb.Tab))
		switch at := eval[stop](b, currentStop); {
		case at.Name == "" && next > 0:
			return append(faults, fmt.Sprintf("Tab leaves the page before %s", want[next])), next
		case at.Place < 0: // not a control
		case at.Place != next:
			return append(faults, fmt.Sprintf("Tab leads to %s, not to %s", at.Name, want[next])), next
		default:
			if !at.Shown {
				faults = append(faults, fmt.Sprintf("%s looks the same with the focus", at.Name))
			}
			next++
		}
	}
	return append(faults, fmt.Sprintf("Tab never leads to %s", want[next])), next
}
