package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// replyOf makes a reply of any shape out of bytes: lists within lists, numbers,
// texts and nothing.
func replyOf(data []byte, depth int) (list []any, rest []byte) {
	for len(data) > 0 {
		kind := data[0]
		data = data[1:]
		switch {
		case kind%8 == 0 && depth > 0:
			return list, data
		case kind%8 <= 2 && depth < 4:
			var inner []any
			inner, data = replyOf(data, depth+1)
			list = append(list, inner)
		case kind%8 <= 5:
			list = append(list, int64(int8(kind))/8)
		case kind%8 == 6:
			n := min(int(kind/8), len(data))
			list = append(list, string(data[:n]))
			data = data[n:]
		default:
			list = append(list, nil)
		}
	}
	return list, nil
}

// Whatever a server answers, nothing panics, and what is granted was granted by
// an answer of one of the items.
func FuzzReply(f *testing.F) {
	f.Add([]byte{3, 6, 1, 1, 11, 3, 30, 'a', 'b', 'c', 0, 0}, uint8(2), uint8(0))
	f.Add([]byte("\x03\x36123456\x01\x01\x0b\x03\x0b\x0b\x0b\x06\x0b\x0b\x00\x00\x0b\x0b\x01\x00\x01\x0b\x0b\x00"), uint8(1), uint8(1))
	f.Add([]byte{59, 3}, uint8(1), uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, items, what uint8) {
		store, err := Open(context.Background(), "redis://127.0.0.1:1", Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		refill, err := limit.NewRefill(1, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		limits := []limit.Limit{
			{Name: "w", Limit: 10, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
			{Name: "b", Limit: 10, Counts: limit.CountUnits, Window: limit.BucketWindow(refill)},
		}
		b := driver.Batch{Budget: "up/key1", Now: 1, Limits: limits}
		for range items % 4 {
			b.Items = append(b.Items, driver.Item{ID: "a", Operation: "op", Units: 1})
		}
		reply, _ := replyOf(data, 0)
		a, err := store.read("charge", b.Budget, reply)
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		run := store.newBatch(ctx, b, time.Now())
		if run.mode = purpose(what % 3); run.mode == looking {
			run.sums = make([]sum, len(limits))
		}
		done, err := run.read(a)
		if err != nil || !done {
			return
		}
		if run.mode == looking {
			_ = run.view()
			return
		}
		for i, d := range run.decided.Items {
			if d.Result == driver.Granted && (i >= len(lists(a.rest, 0)) || numberAt(lists(a.rest, 0)[i], 0) != int64(driver.Granted)) {
				t.Fatalf("item %d is granted by %v", i, reply)
			}
			if d.Limit >= len(limits) {
				t.Fatalf("limit %d", d.Limit)
			}
		}
	})
}
