#!/usr/bin/env bash
# Runs every fuzz target of the main module for the time given (60s): fuzz.sh [TIME]
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-60s}
n=0

# fuzz runs one target. Go's fuzzer sometimes takes the end of its own time for a failure of the target, or is ended by
# the kernel for want of memory, and says so without an input; such a run is made again. A finding names its input, or the
# seed that it is.
fuzz() {
  local try log
  log=$(mktemp)
  for try in 1 2 3 4 5; do
    if go test -run '^$' -fuzz "^$1\$" -fuzztime "$time" -fuzzminimizetime 100x "./$2" 2>&1 | tee "$log"; then
      # The time began with the seeds, which the tests run too: on a slow machine it may have been over with them.
      grep -q 'now fuzzing with' "$log" || echo "fuzz: $1: there was time for the seeds only"
      rm -f "$log"
      return 0
    fi
    spurious "$log" || break
    echo "fuzz: that was the fuzzer's own end, once more"
  done
  rm -f "$log"
  return 1
}

# spurious LOG: whether a run failed for no reason that is the target's.
spurious() {
  ! grep -qE 'Failing input|failure while testing seed corpus' "$1" &&
    grep -qE '^ *(context deadline exceeded|fuzzing process terminated by unexpected signal; no crash .*)$' "$1"
}

while IFS=: read -r file decl; do
  target=${decl#func }
  target=${target%%(*}
  echo "fuzz: $target in ${file%/*} for $time"
  fuzz "$target" "${file%/*}"
  n=$((n + 1))
done < <(git grep --untracked -o 'func Fuzz[A-Za-z0-9_]*(' -- '*_test.go' ':!test')
if [ $n = 0 ]; then
  echo "fuzz: no targets found" >&2
  exit 1
fi
echo "fuzz: $n targets, no finding"
