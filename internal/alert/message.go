package alert

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/quotactl/quotactl/jobs"
)

// Message is what an alert tells. Its JSON is the body of a webhook as = "json".
type Message struct {
	ID     string       `json:"id"` // the same each time that it is sent
	Kind   string       `json:"kind"`
	Phase  Phase        `json:"phase"`
	Budget name         `json:"budget"` // null where it does not apply, like job and limit
	Job    name         `json:"job"`
	Limit  name         `json:"limit"`
	At     jobs.Instant `json:"at"`
	Text   string       `json:"text"`
	// Others is how many situations of the alert are open.
	Others int `json:"-"`
	// rest are the mail's recipients who did not get it yet; nil: nobody did.
	rest []string
}

// name is a string that is null in JSON where it is empty.
type name string

// MarshalJSON implements json.Marshaler.
func (n name) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(n))
}

func newMessage(alert string, s subject, t turn) Message {
	return Message{
		ID: identify(alert, s, t), Kind: s.Kind, Phase: t.phase, Budget: name(s.Budget), Job: name(s.Job), Limit: name(s.Limit),
		At: jobs.InstantOf(t.at), Text: t.text,
	}
}

// title is a line that says what the message is about.
func (m Message) title() string {
	words := []string{"quotactl:", m.Kind}
	if m.Phase == End {
		words = append(words, "is over")
	}
	for _, about := range []name{m.Job, m.Budget, m.Limit} {
		if about != "" {
			words = append(words, string(about))
		}
	}
	return strings.Join(words, " ")
}

// mostDiscord is how many characters Discord takes.
const mostDiscord = 2000

// body is what a webhook gets in a form, and its content type.
func (m Message) body(as string) (body []byte, contentType string) {
	switch as {
	case "slack":
		text := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(m.title() + "\n" + m.Text)
		return asJSON(map[string]any{"text": text})
	case "discord":
		text := []rune(m.title() + "\n" + m.Text)
		return asJSON(map[string]any{"content": string(text[:min(len(text), mostDiscord)]), "allowed_mentions": map[string]any{"parse": []string{}}})
	case "ntfy", "healthchecks":
		return []byte(m.Text), "text/plain; charset=utf-8"
	}
	return asJSON(m)
}

func asJSON(value any) ([]byte, string) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // not possible: only strings and times
	}
	return bytes.TrimSpace(b.Bytes()), "application/json"
}
