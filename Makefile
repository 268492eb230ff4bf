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

.PHONY: help build run test lint race poison fuzz integration conformance bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/ashlar: static, no paths of this machine in it
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ashlar ./cmd/ashlar

run: build ## a sample bucket, a node in front of it, and commands to paste
	bin/ashlar demo

test: ## hermetic tests
	go test ./...

lint: ## gofmt, go vet, staticcheck, govulncheck on every module
	test/lint.sh

race: ## hermetic tests under the race detector
	go test -race ./...

poison: ## hermetic tests of the build that poisons released memory
	go test -tags poison ./...

fuzz: ## every fuzz target, FUZZTIME each (60s)
	test/fuzz.sh $(FUZZTIME)

integration: build ## real clients against a real S3 server, through the built binary
	settings=$$(test/setup.sh); eval "$$settings"; TEST_ASHLAR=$(CURDIR)/bin/ashlar \
		go -C test test -tags integration -count=1 -timeout 15m $(INTEGRATIONFLAGS) ./integration/...

conformance: build ## the same tests against an S3 server and through a node in front of it; report in out/
	settings=$$(test/setup.sh); eval "$$settings"; go -C test build -o $(CURDIR)/bin/conformance ./conformance
	bin/conformance -ashlar bin/ashlar -versitygw "$$TEST_VERSITYGW" -out out

bench: build ## W1-W4 against nginx and Varnish, ratios; BENCHFLAGS='-quick' for a smoke run
	go -C test build -o $(CURDIR)/bin/bench ./bench
	bin/bench -ashlar bin/ashlar -out out $(BENCHFLAGS)
