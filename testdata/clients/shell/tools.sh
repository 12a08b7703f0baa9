#!/bin/sh
# The scenarios that the arguments name, with programs that are no library.
set -eu
base=https://api.example.invalid
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wget_body() {
  wget -nv -O "$work/body" "$base/file" 2>"$work/said" || { cat "$work/said" >&2; return 8; }
  echo "$(wc -c <"$work/body" | tr -d ' ') bytes"
}
httpie_body() {
  http --ignore-stdin --check-status --print=b GET "$base/file" >"$work/body" || { cat "$work/body" >&2; return 1; }
  echo "$(wc -c <"$work/body" | tr -d ' ') bytes"
}
httpie_upload() { head -c 1048576 /dev/zero | http --print=b POST "$base/upload" | jq -r '"\(.bytes) bytes"'; }
pip_download() {
  PIP_DISABLE_PIP_VERSION_CHECK=1 "$PYTHON" -m pip download -q --no-cache-dir --no-deps --index-url https://packages.example.com/simple/ -d "$work" demo
  ls "$work"
}
npm_view() { npm view --registry https://packages.example.com/npm/ --no-update-notifier demo version; }
cargo_search() {
  CARGO_HOME=$work/cargo cargo search -q --index sparse+https://packages.example.com/index/ demo
}
go_list() { cd "$work" && GOPROXY=https://packages.example.com/go GONOSUMDB='*' GOFLAGS=-mod=mod GOMODCACHE=$work/go GOCACHE=$work/cache go list -m -versions example.com/demo; }
gh_issues() {
  GH_TOKEN=an-example GH_NO_UPDATE_NOTIFIER=1 gh api --paginate repos/octo/hello/issues --jq '.[].id' >"$work/ids"
  echo "$(wc -l <"$work/ids" | tr -d ' ') issues"
}
git_clone() { git clone -q https://git.example.com/repo.git "$work/repo" && git -C "$work/repo" log --format=%s; }
# A child's child.
child_status() { sh -c '"$PYTHON" -c "import subprocess; subprocess.run([\"curl\", \"-sSf\", \"-o\", \"/dev/null\", \"-w\", \"%{http_code}\\n\", \"https://api.example.invalid/file\"], check=True)"'; }

for name; do
  printf '%s: ' "$name"
  "$name"
done
