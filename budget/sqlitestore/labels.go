package sqlitestore

import "github.com/quotactl/quotactl/budget/driver"

// label is the number of a label's text, which entries have in its place.
type label struct {
	no     int64
	usedAt int64
}

// labelUseNoted is the least time in µs between two updates of a label's used_at.
const labelUseNoted int64 = 3_600_000_000

// maxLabels bounds the labels that a process caches for a budget.
const maxLabels = 4096

// label sets an entry's label numbers.
func (l *ledger) label(e *entry, labels driver.Labels, now int64) (err error) {
	if e.job, err = l.labelNumber(labels.Job, now); err != nil {
		return err
	}
	if e.region, err = l.labelNumber(labels.Region, now); err != nil {
		return err
	}
	e.run, err = l.labelNumber(labels.Run, now)
	return err
}

// labelNumber returns a text's number, and assigns one to a new text; 0 for an empty text.
func (l *ledger) labelNumber(text string, now int64) (int64, error) {
	if text == "" {
		return 0, nil
	}
	known := l.labels[text]
	if known == nil {
		known = &label{}
		found, err := l.c.first("SELECT no, used_at FROM label WHERE b = ? AND name = ?", []any{l.b, text}, &known.no, &known.usedAt)
		if err != nil {
			return 0, err
		}
		if !found {
			l.labelNo++
			known.no = l.labelNo
		}
		if len(l.labels) >= maxLabels {
			clear(l.labels)
			clear(l.texts)
		}
		l.labels[text], l.texts[known.no] = known, text
	}
	if known.usedAt == 0 || now-known.usedAt >= labelUseNoted {
		known.usedAt = now
		err := l.c.exec("INSERT OR REPLACE INTO label(b, name, no, used_at) VALUES (?, ?, ?, ?)", l.b, text, known.no, now)
		if err != nil {
			return 0, err
		}
	}
	return known.no, nil
}

// labelText is the text of a label's number; empty for 0.
func (l *ledger) labelText(no int64) (text string, err error) {
	text, known := l.texts[no]
	if no == 0 || known {
		return text, nil
	}
	_, err = l.c.first("SELECT name FROM label WHERE b = ? AND no = ?", []any{l.b, no}, &text)
	if len(l.texts) < maxLabels {
		l.texts[no] = text
	}
	return text, err
}

// labelsOf returns the labels of an entry. It tries the likely ones first: others take a
// search of all texts.
func (l *ledger) labelsOf(e *entry, likely driver.Labels) (driver.Labels, error) {
	labels := likely
	for _, one := range []struct {
		no   int64
		text *string
	}{{e.job, &labels.Job}, {e.region, &labels.Region}, {e.run, &labels.Run}} {
		if *one.text != "" {
			var no int64
			found, err := l.c.first("SELECT no FROM label WHERE b = ? AND name = ?", []any{l.b, *one.text}, &no)
			if err != nil {
				return labels, err
			}
			if found && no == one.no {
				continue
			}
		}
		*one.text = ""
		if one.no == 0 {
			continue
		}
		if _, err := l.c.first("SELECT name FROM label WHERE b = ? AND no = ?", []any{l.b, one.no}, one.text); err != nil {
			return labels, err
		}
	}
	return labels, nil
}

// pruneLabels deletes up to limit labels last used before an instant.
func (l *ledger) pruneLabels(before int64, limit int) error {
	var texts []string
	var text string
	err := l.c.each("SELECT name FROM label WHERE b = ? AND used_at < ? LIMIT ?", []any{l.b, before, limit},
		func() { texts = append(texts, text) }, &text)
	if err != nil {
		return err
	}
	for _, text := range texts {
		delete(l.labels, text)
		if err := l.c.exec("DELETE FROM label WHERE b = ? AND name = ?", l.b, text); err != nil {
			return err
		}
	}
	return nil
}
