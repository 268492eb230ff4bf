# Ashlar: everything a developer runs. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The toolchain that everything is built and checked with; go fetches it when another one is installed. Raise it with
# every release of Go: the standard library's fixes are ours.
export GOTOOLCHAIN := go1.26.10

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME ?= 60s
BENCHFLAGS ?=
INTEGRATIONFLAGS ?=
CONSISTENCYFLAGS ?=
CONFORMANCEFLAGS ?=

.PHONY: help build run fetch setup test lint race poison fuzz damage integration consistency conformance bench scale profile cost shaped bin/bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/ashlar: static, no paths of this machine in it
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ashlar ./cmd/ashlar

run: build ## a sample bucket, three nodes and a gateway in front of it, and commands to paste
	bin/ashlar demo

fetch: ## what go needs of the network for all that is here: the toolchain, modules and tools
	test/retry.sh go version
	for m in . test test/objstore test/tools; do test/retry.sh go -C $$m mod download; done

setup: ## what the integration tests run against, into a cache folder
	test/setup.sh

# No limit of go test says how fast anything is to be: they are for what hangs.
test: ## hermetic tests
	go test -timeout 30m ./...

lint: ## gofmt, go vet, staticcheck, govulncheck on every module
	test/lint.sh

race: ## hermetic tests under the race detector, with fewer random rounds
	go test -race -short -timeout 60m ./...

poison: ## hermetic tests of the build that poisons released memory
	go test -tags poison -timeout 30m ./...

fuzz: ## every fuzz target, FUZZTIME each (60s)
	test/fuzz.sh $(FUZZTIME)

damage: ## the disk tier: a million pieces of harm to its files, 200 kills, 200 crashes of the machine; ten minutes
	DAMAGE_ROUNDS=1000000 KILL_ROUNDS=200 CRASH_ROUNDS=200 \
		go test ./blockstore/disk -count=1 -timeout 30m -v -run '^Test(Damage|Kill|Crash)$$'

integration: build ## real clients against a real S3 server, through the built binary
	settings=$$(test/setup.sh); eval "$$settings"; TEST_ASHLAR=$(CURDIR)/bin/ashlar \
		go -C test test -tags integration -count=1 -p 1 -timeout 60m $(INTEGRATIONFLAGS) \
		./internal/... ./integration/... ./consistency/... ./deploy/... ./bench

consistency: build ## many writers and readers of the same objects, a minute each load; CONSISTENCYFLAGS='-seed N'
	TEST_ASHLAR=$(CURDIR)/bin/ashlar go -C test test -tags integration -count=1 -timeout 30m -v ./consistency \
		-duration 60s $(CONSISTENCYFLAGS)

conformance: build ## the same tests against an S3 server and through a node in front of it; report in out/
	go -C test build -o $(CURDIR)/bin/conformance ./conformance
	go -C test/objstore test -c -o $(CURDIR)/bin/objstore.test
	settings=$$(test/setup.sh); eval "$$settings"; bin/conformance -out out $(CONFORMANCEFLAGS)

bin/bench:
	go -C test build -o $(CURDIR)/bin/bench ./bench

bench: build bin/bench ## W1-W4 beside nginx and Varnish, in out/; BENCHFLAGS='-quick', or '-publish .' into the docs
	bin/bench -ashlar bin/ashlar -out out $(BENCHFLAGS)

scale: build bin/bench ## how the cost grows with blocks, connections, nodes, object and block size; BENCHFLAGS='-only nodes'
	bin/bench scale -ashlar bin/ashlar -out out $(BENCHFLAGS)

profile: build bin/bench ## CPU and allocation profiles of W1-W4 in out/, and the top ten of each
	bin/bench profile -ashlar bin/ashlar -out out $(BENCHFLAGS)

cost: build bin/bench ## what a node costs that does nothing: start with an empty disk, idle CPU, memory
	bin/bench cost -ashlar bin/ashlar $(BENCHFLAGS)

shaped: build ## a scan with 4 nodes and with 1, each behind a link of 100 Mbit/s; needs root, ip and tc; half a minute to two
	TEST_ASHLAR=$(CURDIR)/bin/ashlar go -C test test -tags shaped -count=1 -timeout 10m -v ./shaped
