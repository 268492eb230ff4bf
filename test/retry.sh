#!/usr/bin/env bash
# Runs a command that fetches something until it succeeds, five times at most: networks and registries fail now and then.
# One that takes more than 20 minutes hangs, and is ended: retry.sh COMMAND [ARGUMENT…]
set -uo pipefail
for pause in 2 5 15 30 ''; do
  rc=0
  timeout -k 10 1200 "$@" || rc=$?
  [ $rc != 0 ] && [ -n "$pause" ] || exit $rc
  echo "retry: $* ended with status $rc; again in $pause s" >&2
  sleep "$pause"
done
