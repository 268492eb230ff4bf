#!/usr/bin/env bash
# Checks every module of the repository: gofmt, go vet, staticcheck, govulncheck. The tools are pinned in tools/go.mod.
set -euo pipefail
cd "$(dirname "$0")/.."

# Reports of known vulnerabilities, as a Go module: read when the database on the web can't be reached.
vulndb=golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018

modules=(. test test/objstore)
staticcheck=$(go -C test/tools tool -n staticcheck)
govulncheck=$(go -C test/tools tool -n govulncheck)

echo "lint: gofmt"
unformatted=$(git ls-files -co --exclude-standard '*.go' | xargs -r "$(go env GOROOT)/bin/gofmt" -l)
if [ -n "$unformatted" ]; then
  printf 'not formatted:\n%s\n' "$unformatted"
  exit 1
fi

# Build tags that bring in files of their own: each is checked with and without.
tags() {
  case $1 in
    .) echo '"" poison' ;;
    test/objstore) echo '""' ;;
    test) echo '"" integration shaped' ;;
  esac
}

for m in "${modules[@]}"; do
  for t in $(tags "$m"); do
    t=${t//\"/}
    echo "lint: go vet, staticcheck in $m${t:+ with tag $t}"
    go -C "$m" vet -tags "$t" ./...
    (cd "$m" && "$staticcheck" -checks inherit,-ST1013 -tags "$t" ./...) # status codes are known by number here
  done
done

# govulncheck exits 3 on a finding and 1 when it could not work, which may mean that the database is out of reach.
db=()
for m in "${modules[@]}"; do
  echo "lint: govulncheck in $m"
  rc=0
  out=$(cd "$m" && "$govulncheck" "${db[@]}" ./... 2>&1) || rc=$?
  if [ $rc = 1 ] && [ ${#db[@]} = 0 ]; then
    echo "lint: the vulnerability database can't be reached, reading $vulndb"
    go -C test/tools mod download "$vulndb"
    db=(-db "file://$(go -C test/tools list -m -f '{{.Dir}}' "$vulndb")/data/osv")
    rc=0
    out=$(cd "$m" && "$govulncheck" "${db[@]}" ./... 2>&1) || rc=$?
  fi
  if [ $rc != 0 ]; then
    printf '%s\n' "$out"
    exit "$rc"
  fi
done
