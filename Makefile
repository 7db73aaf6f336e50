# Isotherm: everything a person or a build machine runs. `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

CARGO ?= cargo
PREFIX ?= /usr/local
UID := $(shell id -u)
# Where rustup puts cargo, for shells that have not read its env file yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help
help: ## list the targets
	@echo "usage: make TARGET"
	@sed -nE 's/^([a-z][a-z%A-Z-]*):.*## (.*)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) \
	  | while IFS='|' read -r target text; do printf '  %-14s %s\n' "$${target/\%/NAME}" "$$text"; done

.PHONY: build
build: ## build the release binary, target/release/isotherm
	scripts/deps build
	$(CARGO) build --release -p isotherm

.PHONY: static
static: ## build one static binary that runs on any x86-64 Linux from 5.10 on
	scripts/deps build
	scripts/static

.PHONY: install
install: static ## install the static binary below PREFIX (/usr/local)
	install -D -m 755 target/static/isotherm $(DESTDIR)$(PREFIX)/bin/isotherm

.PHONY: test
test: test-unit test-root ## all tests that this machine and this user can run

.PHONY: test-unit
test-unit: ## unit, property and command-line tests; no privilege needed
	scripts/deps build
	$(CARGO) test --workspace -- --skip root_

.PHONY: test-root
test-root: ## tests on real processes that need root and eBPF
	scripts/deps build
ifeq ($(UID),0)
	$(CARGO) test --workspace -- root_
else
	@echo "test-root: skipped, because it needs root"
endif

.PHONY: bench
bench: bench-accuracy ## all benchmarks

.PHONY: bench-%
bench-%: ## one benchmark: accuracy
	scripts/deps build
	$(CARGO) run --release -p isotherm-bench --bin $* -- $(BENCH_ARGS)

.PHONY: lint
lint: ## rustfmt, clippy and rustdoc, warnings denied
	scripts/deps build lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items

.PHONY: clean
clean: ## remove everything that was built, downloaded or written
	$(CARGO) clean
	rm -rf out
