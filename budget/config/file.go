package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/quotactl/quotactl/budget/driver"
)

// How many bytes a configuration, and a file with a secret, may have.
const (
	maxConfigFile = 16 << 20
	maxSecretFile = 64 << 10
)

// ReadFile reads the text of a configuration: a regular file, or a link to one, of at
// most 16 MiB. It does not wait for the writer of a named pipe, and reads no device. A
// pipe that the caller has opened can be read under its name, /dev/stdin or /dev/fd/N.
func ReadFile(path string) ([]byte, error) {
	text, err := readRegular(path, maxConfigFile)
	var fault *fs.PathError
	switch {
	case errors.As(err, &fault):
		advice := "write one, or name it with --config or QUOTACTL_CONFIG"
		if errors.Is(err, fs.ErrPermission) {
			advice = "let this user read it"
		}
		return nil, fmt.Errorf("read the configuration: %w; %s", err, cmp.Or(driver.Shortage("", err), advice))
	case err != nil:
		return nil, fmt.Errorf("read the configuration: %w; name a regular file with --config or QUOTACTL_CONFIG", err)
	}
	return text, nil
}

// ReadSecret reads a file with a secret, a key or a certificate, as [ReadFile] reads a
// configuration; the file may have at most 64 KiB.
func ReadSecret(path string) ([]byte, error) { return readRegular(path, maxSecretFile) }

// readRegular reads a regular file of at most most bytes. The error is an *fs.PathError
// if the system refused to open or read it.
func readRegular(path string, most int64) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // else a named pipe waits for its writer
	if errors.Is(err, syscall.ENXIO) {                                // a socket, or a device that does not exist
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && !isOpenPipe(path, info.Mode()) {
		return nil, fmt.Errorf("%s is %s, not a regular file", path, fileKind(info.Mode()))
	}
	var b bytes.Buffer
	b.Grow(int(min(max(0, info.Size()), most)) + bytes.MinRead)
	_, err = b.ReadFrom(io.LimitReader(file, most+1))
	text := b.Bytes()
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > most && most < 1<<20:
		return nil, fmt.Errorf("%s has more than %d KiB", path, most>>10)
	case int64(len(text)) > most:
		return nil, fmt.Errorf("%s has more than %d MiB", path, most>>20)
	}
	return text, nil
}

// isOpenPipe reports whether the file is a pipe that the caller has opened, not one that
// waits for a writer.
func isOpenPipe(path string, mode fs.FileMode) bool {
	return mode&fs.ModeNamedPipe != 0 && (path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/"))
}

// fileKind names the kind of a file that is not regular.
func fileKind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}
