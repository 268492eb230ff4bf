#!/usr/bin/env bash
# Installs what the integration tests run against, at pinned versions, into a cache folder outside the tree:
# versitygw, and Python with the clients of integration/clients/requirements.txt. Does nothing that is done already.
# Prints shell assignments for the tests: eval "$(test/setup.sh)"
set -euo pipefail
cd "$(dirname "$0")"

versitygw=github.com/versity/versitygw
version=v1.8.0
cache=${TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ashlar-test}
mkdir -p "$cache"

# has FILE: whether it is versitygw in the right version.
has() {
  [ -x "$1" ] && [[ $(go version -m "$1" 2>/dev/null) == *"$versitygw"$'\t'"$version"* ]]
}

gateway=$cache/versitygw-$version
for f in "$(command -v versitygw || true)" "$(go env GOPATH)/bin/versitygw"; do
  if ! has "$gateway" && has "$f"; then gateway=$f; fi
done
if ! has "$gateway"; then
  echo "setup: building versitygw $version, which takes some minutes once" >&2
  GOBIN=$cache go install "$versitygw/cmd/versitygw@$version" >&2
  mv "$cache/versitygw" "$gateway"
fi

# The folder is named after what is in it, so that a changed list makes a new one.
requirements=integration/clients/requirements.txt
venv=$cache/python-$(sha256sum "$requirements" | cut -c1-12)
if [ ! -e "$venv/complete" ]; then
  echo "setup: installing the Python clients" >&2
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r "$requirements" >&2
  touch "$venv/complete"
fi

printf 'export TEST_VERSITYGW=%q TEST_VENV=%q\n' "$gateway" "$venv"
