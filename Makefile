# Isotherm: everything a person or a build machine runs. `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

CARGO ?= cargo
PREFIX ?= /usr/local
UID := $(shell id -u)
LINTED :=
TEST_DEPS := build
# A build machine builds once: it keeps nothing for the next time, which costs 7 % more CPU time, nor lines for a debugger (panics name theirs all the same).
# It does not optimize the static binary across crates, which is a quarter of what that takes, and lints while it compiles, since `lint` has cargo check all
# crates of others once more.
ifneq ($(CI),)
export CARGO_INCREMENTAL := 0
export CARGO_PROFILE_DEV_DEBUG := 0
export CARGO_PROFILE_RELEASE_LTO := off
LINTED := env RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/rustc-linted
TEST_DEPS += lint
endif
# Where rustup puts cargo, for shells that have not read its env file yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help
help: ## list the targets
	@echo "usage: make TARGET"
	@sed -nE 's/^([a-z][a-z%A-Z-]*):.*## (.*)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) \
	  | while IFS='|' read -r target text; do printf '  %-14s %s\n' "$${target/\%/NAME}" "$$text"; done

.PHONY: demo
demo: ## watch a real redis for 20 s, show its hot memory, write ./out/demo.html and .png
	scripts/deps build demo
	scripts/demo

.PHONY: demo-fleet
demo-fleet: ## make up a fleet of 50 hosts for two days, and show what its idle memory is worth, ./out/fleet.html
	scripts/deps build
	scripts/demo-fleet

.PHONY: build
build: ## build the release binary, target/release/isotherm
	scripts/deps build
	$(CARGO) build --release -p isotherm

.PHONY: static
static: ## build one static binary that runs on any x86-64 Linux from 5.10 on
	scripts/deps build
	scripts/static

.PHONY: install
install: static install-files ## install the static binary, manual pages, completions, the systemd units and examples below PREFIX (/usr/local)

.PHONY: deb
deb: static ## a Debian package with all of that, target/deb/isotherm_*.deb
	scripts/deb

.PHONY: test-deb
test-deb: deb ## the package is installed, upgraded and purged by dpkg below a folder (root; not part of `make test`)
	scripts/deps guest
	tests/deb/run target/deb/isotherm_*.deb

.PHONY: test-deb-guest
test-deb-guest: deb ## the package and its units in a Debian 12 that boots systemd, under QEMU (root; not part of `make test`)
	scripts/deps guest root-fs
	tests/deb/guest target/deb/isotherm_*.deb

.PHONY: install-files
install-files: # whatever the umask is: everybody may read what is installed
	umask 022; to="$(DESTDIR)$(PREFIX)"; \
	install -D -m 755 target/static/isotherm "$$to/bin/isotherm"; \
	target/static/isotherm generate "$$to/share"; \
	install -D -m 644 -t "$$to/lib/systemd/system" dist/*.service; \
	sed -i 's|/usr/local|$(PREFIX)|' "$$to"/lib/systemd/system/isotherm*.service; \
	install -D -m 644 -t "$$to/share/doc/isotherm" dist/example.toml dist/node.toml docs/control.md dist/prometheus/isotherm.rules.yml dist/grafana/isotherm-node.json

.PHONY: test
test: ## lint and all tests that this machine and this user can run; what waits for the clock has the compiler beside it
	scripts/deps build lint guest real
	[ $(UID) != 0 ] || scripts/deps root || true # without clang one test is skipped
	$(CARGO) fmt --all --check
	scripts/beside '$(MAKE) test-programs $(if $(LINTED),lint-programs,lint)' '$(MAKE) static-programs test-real REAL=-beats test-guest'
	$(MAKE) test-real REAL=beats # programs that keep time have nothing beside them
	scripts/beside '$(MAKE) test-unit' '$(MAKE) test-root test-damo'

.PHONY: static-programs
static-programs:
	scripts/static
	scripts/static guest_load
	scripts/static ycsb_client

.PHONY: test-programs
test-programs:
	$(LINTED) $(CARGO) test --workspace --no-run

.PHONY: lint-programs
lint-programs: # what `lint` looks at and the tests' build, where that lints, does not
	$(LINTED) $(CARGO) build --workspace --features isotherm-daemon/testing # programs without their tests, of crates as the tests' build made them
	$(MAKE) lint-fuzz

.PHONY: test-unit
test-unit: ## unit, property and command-line tests; no privilege needed
	scripts/deps $(TEST_DEPS)
	$(MAKE) test-programs # what is slow to build does not hang
	scripts/again $(LINTED) $(CARGO) test --workspace --no-fail-fast -- --skip root_

.PHONY: test-root
test-root: ## tests on real processes that need root and eBPF
ifeq ($(UID),0)
	scripts/deps $(TEST_DEPS)
	scripts/deps root || true # without clang one test is skipped
	RUST_TEST_THREADS=3 scripts/again $(LINTED) $(CARGO) test --workspace --no-fail-fast --tests -- root_ # they wait for the clock
else
	@echo "test-root: skipped, because it needs root"
endif

.PHONY: test-guest
test-guest: ## the static binary in Debian's 6.1 and 6.12 kernels under QEMU; hinting in guests and on their host
	scripts/deps build guest
	$(MAKE) static-programs
	tests/guest/run
	tests/guest/hint/run $(HINT_ARGS)

.PHONY: test-real
test-real: ## redis, PostgreSQL, numpy, known pages: what they used is not called cold, what they left alone is
	scripts/deps build real
	scripts/static
	tests/real/run $(REAL)

.PHONY: test-neighbours
test-neighbours: ## as test-real, of a redis, a PostgreSQL and a JVM beside 150 programs: ps, top, /metrics and Parquet agree (root; not part of `make test`)
	scripts/deps build neighbours
	scripts/static
	[ -x out/neighbours/bin/python ] || python3 -m venv out/neighbours
	out/neighbours/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1
	out/neighbours/bin/python tests/real/run neighbours

.PHONY: test-damo
test-damo: ## damo and scripts for DAMON's files control us (root), damo and we read each other's records; what is missing is skipped
	scripts/deps $(TEST_DEPS)
	$(LINTED) $(CARGO) test --workspace --no-run --test commands # the binary as test-unit builds it, not once more
	scripts/again tests/damo/run target/debug/isotherm
	scripts/again tests/damo/live target/debug/isotherm
	scripts/again tests/damo/facts target/debug/isotherm
	scripts/again tests/damo/debugfs target/debug/isotherm
	scripts/again tests/damo/modules target/debug/isotherm

.PHONY: test-prometheus
test-prometheus: ## a real Prometheus scrapes the node; alerts and dashboard are tried (root; not part of `make test`)
	scripts/deps build prometheus
	scripts/static
	tests/prometheus/setup
	tests/prometheus/run

.PHONY: test-kubernetes
test-kubernetes: ## manifests against Kubernetes' schemas; the image's content as the DaemonSet runs it, without a cluster (root; not part of `make test`)
	scripts/deps build kubernetes
	scripts/static
	tests/kubernetes/setup
	out/kubernetes/venv/bin/python tests/kubernetes/run target/static/isotherm

.PHONY: test-engines
test-engines: ## isotherm-fleet's queries on DuckDB, DataFusion, Spark, Ballista, and an S3 bucket (not part of `make test`)
	scripts/deps build engines
	$(CARGO) build -p isotherm-fleet
	tests/engines/setup
	out/engines/venv/bin/python tests/engines/run target/debug/isotherm-fleet

.PHONY: soak
soak: ## for SOAK_SECONDS (3600): processes come, go and are killed; nothing stays stopped, no byte is wrong, memory stays flat
	scripts/deps build
	scripts/static
	tests/soak/run

.PHONY: fuzz
fuzz: ## for FUZZ_SECONDS (3600) each: AFL on the readers of what others wrote (FUZZ_TARGETS: those in fuzz/corpus)
	scripts/deps build
	scripts/fuzz

.PHONY: bench
bench: bench-accuracy bench-wss bench-overhead bench-schemes bench-thp bench-tiering bench-lock bench-sim bench-lru ## all benchmarks

.PHONY: bench-%
bench-%: ## one benchmark: accuracy, wss, overhead, schemes, thp, tiering, lock, sim, lru, node; BENCH_ARGS="..." passes options on
	scripts/deps build
	$(CARGO) build --release -p isotherm
	$(CARGO) run --release -p isotherm-bench --bin $* -- $(BENCH_ARGS)

.PHONY: bench-overhead
bench-overhead:
	scripts/deps build demo
	$(CARGO) build --release -p isotherm -p isotherm-bench-overhead -p isotherm-bench-lru
	bench/overhead/run.py $(BENCH_ARGS)

.PHONY: bench-schemes bench-thp bench-tiering bench-lock
bench-schemes bench-thp bench-tiering bench-lock:
	scripts/deps build real $(if $(filter bench-thp,$@),neighbours)
	$(CARGO) build --release -p isotherm -p isotherm-bench-schemes
	bench/schemes/$(@:bench-%=%).py $(BENCH_ARGS)

.PHONY: bench-sim
bench-sim:
	scripts/deps build
	scripts/deps sim || true # without them libCacheSim's own program is left out
	$(CARGO) build --release -p isotherm
	bench/sim/sim.py $(BENCH_ARGS)

.PHONY: bench-lru
bench-lru:
	scripts/deps build real
	$(CARGO) build --release -p isotherm -p isotherm-bench-lru
	bench/lru/lru.py $(BENCH_ARGS)

.PHONY: bench-node
bench-node: ## the agent of the machine: its cost beside others, and what its rules save in three groups of programs; root
	scripts/deps build real
	$(CARGO) build --release -p isotherm -p isotherm-bench-lru
	bench/node/node.py $(BENCH_ARGS)

.PHONY: bench-fleet
bench-fleet: ## isotherm-fleet's rows a second and memory beside DuckDB and Spark on the same files
	scripts/deps build engines
	$(CARGO) build --profile fleet -p isotherm-fleet
	ISOTHERM_NO_BALLISTA=1 tests/engines/setup
	bench/fleet/fleet.py $(BENCH_ARGS)

.PHONY: bench-agents
bench-agents: ## three agents for an hour: whether rules of isotherm-fleet's tune save what its what-if has said; root
	scripts/deps build real
	$(CARGO) build --release -p isotherm -p isotherm-bench-lru
	$(CARGO) build --profile fleet -p isotherm-fleet
	bench/fleet/agents.py $(BENCH_ARGS)

.PHONY: bench-lru-guest
bench-lru-guest: ## the load of bench-lru where the kernel has generations of its own: in an emulated guest
	scripts/deps build guest
	scripts/static
	scripts/static ycsb_client
	bench/lru/guest.py $(BENCH_ARGS)

.PHONY: bench-node-guest
bench-node-guest: ## rules of the agent beside a loop by pressure, and its cost and truth beside the kernel's DAMON: in an emulated guest
	scripts/deps build guest
	scripts/static
	scripts/static ycsb_client
	bench/node/guest.py $(BENCH_ARGS)

.PHONY: bench-guests
bench-guests: ## how many guests fit on a host with hints, and what they cost a guest; root; BENCH_ARGS="..." as above
	scripts/deps build guest
	scripts/static
	scripts/static guest_load
	bench/guests/guests.py $(BENCH_ARGS)

.PHONY: lint
lint: ## rustfmt, clippy and rustdoc, warnings denied
	scripts/deps build lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(MAKE) lint-fuzz
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(CARGO) doc --workspace --no-deps --document-private-items

.PHONY: lint-fuzz
lint-fuzz: # else `make fuzz` refuses to build
	$(CARGO) metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null

.PHONY: clean
clean: ## remove everything that was built, downloaded or written
	$(CARGO) clean
	rm -rf out
