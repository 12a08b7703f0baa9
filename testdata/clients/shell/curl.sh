#!/bin/sh
# The scenarios that the arguments name, with curl. HTTP=--http1.1 has it not ask for HTTP/2.
set -eu
base=https://api.example.invalid
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
get() { curl -sS --fail-with-body ${HTTP:---http2} "$@" || { code=$?; cat "$work/body" >&2 2>/dev/null || true; exit "$code"; }; }
# The body goes to a file, so that a refusal's text can be shown.
body() { get -o "$work/body" "$@"; }
size() { wc -c <"$work/body" | tr -d ' '; }

token() {
  items=0 page=
  while :; do
    body "$base/token/items$page"
    items=$((items + $(jq '.items | length' "$work/body")))
    page=$(jq -r '.nextPageToken // empty | "?pageToken=" + .' "$work/body")
    [ -n "$page" ] || break
  done
  echo "$items items"
}
absolute() {
  items=0 url=$base/absolute/items
  while [ -n "$url" ]; do
    body "$url"
    items=$((items + $(jq '.items | length' "$work/body")))
    url=$(jq -r '.next // empty' "$work/body")
  done
  echo "$items items"
}
link() {
  items=0 url=$base/link/items
  while [ -n "$url" ]; do
    body -D "$work/head" "$url"
    items=$((items + $(jq length "$work/body")))
    url=$(sed -n 's/^[Ll]ink: <\([^>]*\)>; rel="next".*/\1/p' "$work/head")
  done
  echo "$items items"
}
upload() {
  head -c 1048576 /dev/zero | body -T - -H 'Expect: 100-continue' "$base/upload"
  echo "$(jq .bytes "$work/body") bytes"
}
resumable() {
  body -X POST -D "$work/head" "$base/resumable"
  at=$(sed -n 's/^[Ll]ocation: \([^[:space:]]*\).*/\1/p' "$work/head")
  begin=0
  for length in 262144 262144 100000; do
    head -c "$length" /dev/zero >"$work/part"
    body -T "$work/part" -H "Content-Range: bytes $begin-$((begin + length - 1))/624288" "$at"
    begin=$((begin + length))
  done
  echo "$(jq .bytes "$work/body") bytes"
}
events() {
  body -N "$base/events"
  echo "$(grep -c '^data:' "$work/body") events"
}
gzip() { body --compressed "$base/packed/gzip" && echo "$(size) bytes"; }
br() { body --compressed "$base/packed/br" && echo "$(size) bytes"; }
zstd() { body --compressed "$base/packed/zstd" && echo "$(size) bytes"; }
head_() {
  get -I -o "$work/head" -w '%{http_code} ' "$base/file"
  sed -n 's/^[Cc]ontent-[Ll]ength: \([0-9]*\).*/\1/p' "$work/head"
}
etag() {
  body --etag-save "$work/etag" -w '%{http_code} ' "$base/file"
  body --etag-compare "$work/etag" -w '%{http_code}\n' "$base/file"
}
moved() { body -L -w '%{http_code}\n' "$base/moved"; }
away() { body -L "$base/away" && cat "$work/body" && echo; }
slow() {
  get -N "$base/slow" | head -n 1 >"$work/body" # curl ends with the pipe's reader
  echo "$(wc -l <"$work/body" | tr -d ' ') line, then cancelled"
}
parallel() {
  get -Z --parallel-immediate --parallel-max 50 -o /dev/null -w '%{http_code}\n' "$base/parallel?n=[1-50]" | grep -c 200
}

for name; do
  case $name in head) run=head_ ;; *) run=$name ;; esac
  printf '%s: ' "$name"
  "$run"
done
