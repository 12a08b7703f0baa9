package outage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/quotactl/quotactl/budget/driver"
)

// fileName turns a budget's name into a file's. No budget name contains a plus.
func fileName(budget string) string { return strings.ReplaceAll(budget, "/", "+") }

// budgetName undoes fileName.
func budgetName(file string) string { return strings.ReplaceAll(file, "+", "/") }

// readFile reads a file. A named pipe is not waited for: without a writer it is empty. A link
// that leads nowhere is not as if there were no file.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if to, linked := os.Readlink(path); linked == nil && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s links to %s, which does not exist", path, to)
		}
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	if info, err := file.Stat(); err == nil && info.Mode()&fs.ModeDevice != 0 {
		return nil, fmt.Errorf("%s is a device, not a file", path)
	}
	return io.ReadAll(file)
}

// writeFile writes a file as a whole or not at all, readable by this user alone. A power
// failure leaves the old file or the new one; the new one for sure once syncDir has returned.
func writeFile(path string, data []byte) error {
	err := replaceFile(path, data)
	if advice := driver.Shortage(filepath.Dir(path), err); advice != "" {
		err = fmt.Errorf("%w; %s", err, advice)
	}
	return err
}

func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return nil
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// asideFolder holds a folder for each budget, and one for the files that are of no budget,
// hostFile. In them is what cannot be used, with the reason beside it in a file .why.
const asideFolder = "aside"

// damaged sets aside a file of the directory whose content is not what this program writes,
// and logs it. It leaves a file that another process has replaced since it was read.
func (s *Store) damaged(budget, kind, path string, data []byte, why error) {
	sum := sha256.Sum256(data)
	folder := fileName(budget)
	if folder == "" {
		folder = hostFile
	}
	to := filepath.Join(s.o.Dir, asideFolder, folder, kind+"."+hex.EncodeToString(sum[:4]))
	err := setAside(path, to, why)
	if errors.Is(err, fs.ErrNotExist) {
		return // another process has set it aside
	}
	if moved, _ := readFile(to); err == nil && !bytes.Equal(moved, data) {
		err = errors.Join(os.Link(to, path), os.Remove(to), os.Remove(to+".why"))
		if err == nil || errors.Is(err, fs.ErrExist) {
			return
		}
	}
	if err != nil {
		why = fmt.Errorf("%w; it cannot be set aside: %w", why, err)
	}
	s.log.Error("a file of the state directory is damaged; it is set aside, and the host begins it anew", "budget", budget, "file", path, "aside", to, "reason", why)
}

// setAside moves a file once the reason is written beside it. After an error, the file is where it was.
func setAside(path, to string, why error) error {
	if _, err := makeDir(filepath.Dir(to)); err != nil {
		return err
	}
	if err := writeFile(to+".why", []byte(why.Error()+"\n")); err != nil {
		return err
	}
	err := os.Rename(path, to)
	if err == nil {
		return nil
	}
	if _, missing := os.Lstat(to); missing != nil {
		_ = os.Remove(to + ".why") // else it is of what another process has set aside
	}
	return fmt.Errorf("set aside a file of the host: %w; make the folder this user's", err)
}
