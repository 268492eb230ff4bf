#!/usr/bin/env bash
# Checks every module of the repository: gofmt, go vet, staticcheck, govulncheck. The tools are pinned in tools/go.mod.
set -euo pipefail
cd "$(dirname "$0")/.."

# Reports of known vulnerabilities, as a Go module: read when the database on the web can't be reached.
vulndb=golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018

modules=(. test test/objstore)
staticcheck=$(test/retry.sh go -C test/tools tool -n staticcheck)
govulncheck=$(test/retry.sh go -C test/tools tool -n govulncheck)

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

# govulncheck exits 3 on a finding and 1 when it could not work, which may mean that the database is out of reach: then a
# copy of it is read, from the proxy that all modules come from. A day without either is no fault of what is checked, so
# that is said and not failed for.
vulnerabilities() {
  rc=0
  out=$(cd "$m" && timeout -k 10 1200 "$govulncheck" "${db[@]}" ./... 2>&1) || rc=$?
}
db=()
for m in "${modules[@]}"; do
  echo "lint: govulncheck in $m"
  vulnerabilities
  if [ $rc != 0 ] && [ $rc != 3 ] && [ ${#db[@]} = 0 ]; then
    printf 'lint: the vulnerability database can not be reached, reading %s:\n%s\n' "$vulndb" "$out"
    if ! test/retry.sh go -C test/tools mod download "$vulndb"; then
      echo "lint: NOT CHECKED for known vulnerabilities: the database is out of reach, and so is the copy"
      break
    fi
    db=(-db "file://$(go -C test/tools list -m -f '{{.Dir}}' "$vulndb")/data/osv")
    vulnerabilities
  fi
  if [ $rc != 0 ]; then
    printf '%s\n' "$out"
    exit "$rc"
  fi
done
