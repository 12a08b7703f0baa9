package config_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Anything but a regular file is refused at once, and a file that is too large without
// reading it.
func TestConfigFileIsRegular(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	large := must.Get(os.Create(in("large")))(t)
	socket := must.Get(net.Listen("unix", in("socket")))(t)
	defer func() { _ = socket.Close() }()
	const text = "# a configuration\n"
	for _, err := range []error{
		large.Truncate(1 << 40), large.Close(), // it takes no room
		syscall.Mkfifo(in("pipe"), 0o600),
		os.Symlink("/dev/zero", in("endless")),
		os.Symlink("pipe", in("to-pipe")),
		os.WriteFile(in("costs.toml"), []byte(text), 0o600),
		os.Symlink("costs.toml", in("link")),
		os.WriteFile(in("most"), []byte(strings.Repeat("#\n", 8<<20)), 0o600),
	} {
		must.Do(t, err)
	}
	for name, want := range map[string]string{
		"large": "has more than 16 MiB", "pipe": "is a pipe, not a regular file; name a regular file with --config", "to-pipe": "is a pipe",
		"endless": "is a device", ".": "is a directory", "socket": "is not a regular file", "none": "write one, or name it",
	} {
		if _, err := config.Parse(in(name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	check.Is(t, check.Err(config.ReadFile(in("none"))), os.ErrNotExist, "no file")
	must.Do(t, os.Chmod(in("most"), 0))
	if _, err := config.ReadFile(in("most")); os.Geteuid() != 0 { // root may read all
		check.Contains(t, err.Error(), "permission denied; let this user read it")
	}
	must.Do(t, os.Chmod(in("most"), 0o600))
	for _, name := range []string{"costs.toml", "link"} {
		if got, err := config.ReadFile(in(name)); err != nil || string(got) != text {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := config.ReadFile(in("most")); err != nil || len(got) != 16<<20 {
		t.Errorf("the most there may be: %d bytes, %v", len(got), err)
	}
}

// A file with a secret is regular too, and small; one with blanks alone is empty.
func TestSecretFileIsRegular(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		syscall.Mkfifo(in("pipe"), 0o600),
		os.Symlink("/dev/zero", in("endless")),
		os.WriteFile(in("large"), make([]byte, 64<<10+1), 0o600),
		os.WriteFile(in("blank"), []byte(" \n"), 0o600),
		os.WriteFile(in("short"), []byte("s3cret7\n"), 0o600),
		os.WriteFile(in("key"), []byte("s3cret-s3cret\n"), 0o640),
		os.WriteFile(in("open"), []byte("s3cret-s3cret\n"), 0o600),
		os.Chmod(in("open"), 0o604), // whatever the umask
	} {
		must.Do(t, err)
	}
	for name, want := range map[string]string{
		"pipe": "is a pipe, not a regular file", "endless": "is a device, not a regular file", "large": "has more than 64 KiB",
		"blank": "is empty; write the secret into it", "none": "no such file or directory; write the file", "short": "has fewer than 8 characters, so logs hide it only where it is a whole word", ".": "is a directory, not a regular file; name the file", "key": "",
		"open": "has a mode that lets every user read it; run chmod o-r on it",
	} {
		text := "[upstream.shop.costs]\nget = 1\n[upstream.shop.limit.day]\nlimit = 1\nwindow = \"24h\"\n[upstream.shop.credential.main]\nsecret_file = \"" + name + "\"\n"
		must.Do(t, os.WriteFile(in("costs.toml"), []byte(text), 0o600))
		c := must.Get(config.Load(in("costs.toml")))(t)
		missing := c.MissingSecrets(os.LookupEnv, 8)
		if want == "" && len(missing) > 0 || want != "" && (len(missing) != 1 || missing[0].Line != 7 || !strings.Contains(missing[0].Message, want)) {
			t.Errorf("%s: %v, want %q", name, missing, want)
		}
		_, err := config.ReadSecret(in(name))
		if readable := want == "" || name == "blank" || name == "short" || name == "open"; (err == nil) != readable {
			t.Errorf("read %s: %v", name, err)
		}
	}
}
