#!/usr/bin/env bash
# Runs every fuzz target of the main module for the time given (60s): fuzz.sh [TIME]
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-60s}
n=0
while IFS=: read -r file decl; do
  target=${decl#func }
  target=${target%%(*}
  echo "fuzz: $target in ${file%/*} for $time"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./${file%/*}"
  n=$((n + 1))
done < <(git grep --untracked -o 'func Fuzz[A-Za-z0-9_]*(' -- '*_test.go' ':!test')
echo "fuzz: $n targets, no finding"
