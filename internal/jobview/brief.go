package jobview

import (
	"fmt"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/view"
)

// Brief is what a job does and how its last pass went: "idle; last pass succeeded, 32 units".
func Brief(v answer.Job) string {
	text := v.State()
	if v.LastPass != nil {
		text += fmt.Sprintf("; last pass %s, %s", v.LastPass.Outcome, view.Plural(int(v.LastPass.Units), "unit"))
	}
	return text
}
