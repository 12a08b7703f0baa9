package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

const base = "https://api.example.invalid"

// client is http.DefaultClient but for its transport, which main may replace.
var client = &http.Client{}

// send makes a request with headers in pairs. An answer above 308 is an error with its body.
func send(ctx context.Context, method, url string, body io.Reader, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode > http.StatusPermanentRedirect {
		text, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return resp, err
}

// read is send with the whole body, which it decodes into v if v is not nil.
func read(ctx context.Context, method, url string, body io.Reader, v any, headers ...string) (*http.Response, []byte, error) {
	resp, err := send(ctx, method, url, body, headers...)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && v != nil && resp.StatusCode == http.StatusOK { // a part of an upload has no answer yet
		err = json.Unmarshal(text, v)
	}
	return resp, text, err
}

func token(ctx context.Context) (string, error) {
	items := 0
	for page := ""; ; {
		var answer struct {
			Items         []any
			NextPageToken string
		}
		if _, _, err := read(ctx, "GET", base+"/token/items"+page, nil, &answer); err != nil {
			return "", err
		}
		items += len(answer.Items)
		if answer.NextPageToken == "" {
			return fmt.Sprint(items, " items"), nil
		}
		page = "?pageToken=" + answer.NextPageToken
	}
}

func absolute(ctx context.Context) (string, error) {
	items := 0
	for url := base + "/absolute/items"; url != ""; {
		var answer struct {
			Items []any
			Next  string
		}
		if _, _, err := read(ctx, "GET", url, nil, &answer); err != nil {
			return "", err
		}
		items, url = items+len(answer.Items), answer.Next
	}
	return fmt.Sprint(items, " items"), nil
}

func link(ctx context.Context) (string, error) {
	next := regexp.MustCompile(`<([^>]*)>; rel="next"`)
	items := 0
	for url := base + "/link/items"; url != ""; {
		var answer []any
		resp, _, err := read(ctx, "GET", url, nil, &answer)
		if err != nil {
			return "", err
		}
		items, url = items+len(answer), ""
		if found := next.FindStringSubmatch(resp.Header.Get("Link")); found != nil {
			url = found[1]
		}
	}
	return fmt.Sprint(items, " items"), nil
}

// zeros is a body of a length that net/http does not know.
func zeros(length int64) io.Reader {
	return struct{ io.Reader }{io.LimitReader(zeroReader{}, length)}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func upload(ctx context.Context) (string, error) {
	var answer struct{ Bytes int }
	_, _, err := read(ctx, "POST", base+"/upload", zeros(1<<20), &answer, "Expect", "100-continue")
	return fmt.Sprint(answer.Bytes, " bytes"), err
}

func resumable(ctx context.Context) (string, error) {
	begun, _, err := read(ctx, "POST", base+"/resumable", nil, nil)
	if err != nil {
		return "", err
	}
	var answer struct{ Bytes int }
	for at, parts := 0, []int{262_144, 262_144, 100_000}; len(parts) > 0; parts = parts[1:] {
		part := strings.NewReader(strings.Repeat("\x00", parts[0]))
		where := fmt.Sprintf("bytes %d-%d/624288", at, at+parts[0]-1)
		if _, _, err = read(ctx, "PUT", begun.Header.Get("Location"), part, &answer, "Content-Range", where); err != nil {
			return "", err
		}
		at += parts[0]
	}
	return fmt.Sprint(answer.Bytes, " bytes"), nil
}

func events(ctx context.Context) (string, error) {
	_, text, err := read(ctx, "GET", base+"/events", nil, nil)
	return fmt.Sprint(strings.Count(string(text), "data:"), " events"), err
}

func gzipped(ctx context.Context) (string, error) {
	_, text, err := read(ctx, "GET", base+"/packed/gzip", nil, nil)
	return fmt.Sprint(len(text), " bytes"), err
}

func brotlied(ctx context.Context) (string, error) {
	return unpacked(ctx, "br", func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil })
}

func zstandard(ctx context.Context) (string, error) {
	return unpacked(ctx, "zstd", func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) })
}

func unpacked(ctx context.Context, encoding string, open func(io.Reader) (io.Reader, error)) (string, error) {
	resp, err := send(ctx, "GET", base+"/packed/"+encoding, nil, "Accept-Encoding", encoding)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	r, err := open(resp.Body)
	if err != nil {
		return "", err
	}
	length, err := io.Copy(io.Discard, r)
	return fmt.Sprint(length, " bytes"), err
}

func head(ctx context.Context) (string, error) {
	resp, _, err := read(ctx, "HEAD", base+"/file", nil, nil)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(resp.StatusCode, " ", resp.ContentLength), nil
}

func etag(ctx context.Context) (string, error) {
	first, _, err := read(ctx, "GET", base+"/file", nil, nil)
	if err != nil {
		return "", err
	}
	again, _, err := read(ctx, "GET", base+"/file", nil, nil, "If-None-Match", first.Header.Get("ETag"))
	if err != nil {
		return "", err
	}
	return fmt.Sprint(first.StatusCode, " ", again.StatusCode), nil
}

func moved(ctx context.Context) (string, error) {
	resp, _, err := read(ctx, "GET", base+"/moved", nil, nil)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(resp.StatusCode), nil
}

func away(ctx context.Context) (string, error) {
	_, text, err := read(ctx, "GET", base+"/away", nil, nil)
	return string(text), err
}

func slow(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := send(ctx, "GET", base+"/slow", nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	_, err = bufio.NewReader(resp.Body).ReadString('\n')
	return "1 line, then cancelled", err
}

func parallel(ctx context.Context) (string, error) {
	errs := make([]error, 50)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, _, errs[i] = read(ctx, "GET", fmt.Sprint(base, "/parallel?n=", i), nil, nil) })
	}
	all.Wait()
	good := 0
	for _, err := range errs {
		if err != nil {
			return "", err
		}
		good++
	}
	return fmt.Sprint(good), nil
}
