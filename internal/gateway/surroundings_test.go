package gateway

import (
	"bufio"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// testOptions are of a command with one metered host, in a folder of the test's.
func testOptions(t *testing.T, env ...string) surroundOptions {
	t.Helper()
	return surroundOptions{
		env: env, hosts: []string{"api.example.com"}, proxy: "127.0.0.1:4711", token: "s3cret",
		ca: newTestAuthority(t, "api.example.com").pem(), temp: t.TempDir(),
	}
}

// surrounded closes the surroundings when the test ends.
func surrounded(t *testing.T, o surroundOptions) (*surroundings, environment) {
	t.Helper()
	s := must.Get(surround(o))(t)
	t.Cleanup(func() { check.NoError(t, s.close()) })
	return s, newEnvironment(s.env)
}

// TestFolder: everybody may read the folder, whatever the umask; it has neither key nor token.
func TestFolder(t *testing.T) {
	old := syscall.Umask(0o077)
	o := testOptions(t)
	o.java, o.direct = true, "127.0.0.1:4712"
	s, err := surround(o)
	syscall.Umask(old)
	must.Do(t, err)
	check.Equal(t, must.Get(os.Stat(s.folder))(t).Mode().Perm(), 0o755)
	names := []string{}
	must.Do(t, filepath.WalkDir(s.folder, func(path string, entry fs.DirEntry, err error) error {
		must.Do(t, err)
		if entry.IsDir() {
			return nil
		}
		names = append(names, entry.Name())
		check.Equal(t, must.Get(entry.Info())(t).Mode().Perm(), 0o644, path)
		text := string(must.Get(os.ReadFile(path))(t))
		if strings.Contains(text, "s3cret") || strings.Contains(text, "PRIVATE KEY") {
			t.Error(path, "has a secret")
		}
		return nil
	}))
	check.EqualSlices(t, names, []string{"bundle.pem", "hook.cjs", "quotactl.ini", "root.pem", "roots.jks", "sitecustomize.py", "wgetrc"})
	must.Do(t, s.close())
	_, err = os.Stat(s.folder)
	check.Is(t, err, fs.ErrNotExist)
}

// TestNoFolder: where there is no folder for temporary files, /dev/shm or an error.
func TestNoFolder(t *testing.T) {
	for _, temp := range []string{filepath.Join(t.TempDir(), "missing"), filepath.Join(t.TempDir(), "with space"), filepath.Join(t.TempDir(), "a:b")} {
		if !strings.HasSuffix(temp, "missing") {
			must.Do(t, os.Mkdir(temp, 0o755))
		}
		o := testOptions(t)
		o.temp = temp
		s, err := surround(o)
		if _, none := os.Stat("/dev/shm"); none != nil {
			check.Contains(t, err.Error(), "set TMPDIR")
			continue
		}
		must.Do(t, err)
		check.Equal(t, filepath.Dir(s.folder), "/dev/shm", temp)
		must.Do(t, s.close())
	}
}

func TestRelativeFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	o := testOptions(t)
	o.temp = "."
	s, env := surrounded(t, o)
	check.Equal(t, filepath.IsAbs(env["SSL_CERT_FILE"]), true, s.folder)
}

// TestKilled: the next start removes the folder of a process that was killed, and neither that of
// one that lives nor what is no folder of ours.
func TestKilled(t *testing.T) {
	if base := os.Getenv("GATEWAY_TEST_HOLDER"); base != "" {
		o := testOptions(t)
		o.temp = base
		_, _ = os.Stdout.WriteString(must.Get(surround(o))(t).folder + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
		return
	}
	effort.Processes(t)
	o := testOptions(t)
	holder := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
	holder.Env = append(os.Environ(), "GATEWAY_TEST_HOLDER="+o.temp)
	_ = must.Get(holder.StdinPipe())(t)
	out := must.Get(holder.StdoutPipe())(t)
	must.Do(t, holder.Start())
	held := strings.TrimSpace(must.Get(bufio.NewReader(out).ReadString('\n'))(t))

	elsewhere := t.TempDir()
	link, file := filepath.Join(o.temp, "quotactl-meter-link"), filepath.Join(o.temp, "quotactl-meter-file")
	must.Do(t, os.Symlink(elsewhere, link))
	must.Do(t, os.WriteFile(file, nil, 0o600))
	must.Do(t, os.WriteFile(filepath.Join(elsewhere, "kept"), nil, 0o600))
	must.Do(t, os.Symlink(elsewhere, filepath.Join(held, "link")))
	one, _ := surrounded(t, o)
	check.NoError(t, check.Err(os.Stat(held)), "while its process lives")

	must.Do(t, holder.Process.Kill())
	_ = holder.Wait()
	_, _ = surrounded(t, o)
	check.Is(t, check.Err(os.Stat(held)), fs.ErrNotExist, "once its process is killed")
	for _, path := range []string{one.folder, link, file, filepath.Join(elsewhere, "kept")} {
		check.NoError(t, check.Err(os.Lstat(path)))
	}
}

// TestForeignFolder: the sweep leaves the folder of another user alone.
func TestForeignFolder(t *testing.T) {
	o := testOptions(t)
	foreign := filepath.Join(o.temp, "quotactl-meter-foreign")
	must.Do(t, os.Mkdir(foreign, 0o777))
	if os.Getuid() != 0 {
		return // only root can give a folder away
	}
	must.Do(t, os.Chown(foreign, 65534, 65534))
	surrounded(t, o)
	check.NoError(t, check.Err(os.Stat(foreign)))
}

// TestManyAtOnce: meters that start together do not sweep each other's folders.
func TestManyAtOnce(t *testing.T) {
	o := testOptions(t)
	var all [16]*surroundings
	done := make(chan error)
	for i := range all {
		go func() {
			var err error
			all[i], err = surround(o)
			done <- err
		}()
	}
	for range all {
		must.Do(t, <-done)
	}
	for _, s := range all {
		check.Equal(t, filepath.Dir(s.folder), o.temp)
		check.NoError(t, check.Err(os.Stat(filepath.Join(s.folder, "bundle.pem"))))
	}
	for _, s := range all {
		check.NoError(t, s.close())
	}
}

func TestJavaNeedsTheListener(t *testing.T) {
	o := testOptions(t)
	o.java = true
	_, err := surround(o)
	check.Contains(t, err.Error(), "leave --java out")
}
