package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/alert"
)

// alertsBody is the page of alerts.
type alertsBody struct {
	Alerts []alertRow
	Open   []alert.Situation
	Known  bool
}

// alertRow is an alert. Where its messages go is a secret, so only the form is shown.
type alertRow struct {
	Name, As, On, About string
	Level, Health       string
	Waiting             int
}

// alerts shows whether messages arrive, and what they told of that has not ended.
func (v *visit) alerts() sheet {
	var body alertsBody
	seen, ok := v.told()
	body.Known, body.Open = ok, seen.open
	for i, a := range v.reader.Config.Alerts {
		row := alertRow{Name: a.Name, As: a.As, On: kinds(a), About: about(a), Level: levelQuiet, Health: "not known"}
		if len(a.MailTo) > 0 {
			row.As = "mail to " + plural(len(a.MailTo), "address")
		}
		if i < len(seen.health) && seen.health[i].Alert == a.Name {
			h := seen.health[i]
			row.Level, row.Health, row.Waiting = levelGood, "all messages arrive", h.Waiting
			if text := h.Text(); text != "" {
				row.Level, row.Health = levelOut, sentence(strings.TrimPrefix(text, "alert "+a.Name+": "))
			}
		}
		body.Alerts = append(body.Alerts, row)
	}
	return sheet{template: "alerts", title: "Alerts", place: "/alerts", body: body}
}

func kinds(a config.Alert) string {
	list := make([]string, len(a.On))
	for i, on := range a.On {
		if list[i] = on.Kind; on.Percent > 0 {
			list[i] = fmt.Sprintf("%s %d%%", on.Kind, on.Percent)
		}
	}
	return strings.Join(list, ", ")
}

func about(a config.Alert) string {
	list := slices.Concat(a.Jobs, a.Budgets)
	if len(list) == 0 {
		return "all jobs and budgets"
	}
	return strings.Join(list, ", ")
}
