package jobview

import (
	"fmt"

	"github.com/quotactl/quotactl/internal/answer"
)

// Brief is what a job does and how its last pass went: "idle; last pass succeeded, 32 units".
func Brief(v answer.Job) string {
	text := v.State()
	if v.LastPass != nil {
		text += fmt.Sprintf("; last pass %s, %s", v.LastPass.Outcome, amount(v.LastPass.Units, v.LastPass.Unknown))
	}
	return text
}
