// Package browser opens the daemon's pages in a real browser, Chromium. It is a module of its
// own: what drives the browser is no dependency of quotactl. A missing browser fails the tests;
// -short skips them.
package browser

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// The tests share one program and one browser, which take seconds to build and to start. Both
// stay as TestMain leaves them: a test opens a tab with a profile of its own.
var (
	quotactl string          // the program's path
	chromium context.Context // the browser's
)

// foreign is a name that the browser finds at this machine, as a page's own name server may have
// it do. It finds no other names.
const foreign = "foreign.test"

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run())
	}
	code, err := withBrowser(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare the browser tests:", err)
		code = 1
	}
	os.Exit(code)
}

// withBrowser calls run with the program built and the browser started.
func withBrowser(run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "quotactl-browser")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	quotactl = filepath.Join(dir, "quotactl")
	build := exec.Command("go", "build", "-o", quotactl, "./cmd/quotactl")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build quotactl: %w\n%s", err, out)
	}
	var stop context.CancelFunc
	chromium, stop = chromedp.NewContext(context.Background(), chromedp.WithAllocatorOptions(
		chromedp.Flag("hide-scrollbars", true), // pictures are the same everywhere
		chromedp.Flag("font-render-hinting", "none"),
		chromedp.Flag("host-resolver-rules", "MAP "+foreign+" 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"),
	))
	defer stop()
	if err := chromedp.Do(chromium); err != nil {
		return 0, fmt.Errorf("start the browser: %w; install it with 'apt-get install chromium fonts-liberation' or 'brew install chromium'", err)
	}
	return run(), nil
}
