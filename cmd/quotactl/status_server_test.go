package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/screen"
)

// What a daemon says of its store is shown as what is read there.
func TestStatusOfAServerShowsTheSame(t *testing.T) {
	o := everything(t)
	for _, job := range o.Jobs { // as the store has it
		for i := range job.Active {
			job.Active[i].Progress = must.Get(json.Marshal(job.Progress[i]))(t)
		}
	}
	text := must.Get(json.Marshal(o.JSON()))(t)
	told := must.Get(look.Decode(text))(t)
	check.Equal(t, string(must.Get(json.Marshal(told.JSON()))(t)), string(text), "JSON")
	for _, on := range []screen.Screen{screen.Pipe(), {Terminal: true, Width: 100, Height: 40, Zone: time.UTC, Now: o.At}} {
		check.Equal(t, statusText(on, told, true), statusText(on, o, true), "text")
	}
}
