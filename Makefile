# Two commands do everything: `make demo` and `make test`.

# Build output is outside the clone, so that a fresh clone on the same machine builds quickly.
FLOODMARK_CACHE ?= $(HOME)/.cache/floodmark
CARGO_TARGET_DIR ?= $(FLOODMARK_CACHE)/target
export FLOODMARK_CACHE CARGO_TARGET_DIR

BINARY = $(CARGO_TARGET_DIR)/release/floodmark

.PHONY: help demo build test test-at test-servers lint sim bench fuzz long-test clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: toolchain ## run server and lab: load, kill -9, recovery, every sample verified (ARGS=--stay keeps the server running)
	cargo build --profile quick --locked -p floodmark --no-default-features
	$(CARGO_TARGET_DIR)/quick/floodmark demo $(ARGS)

build: toolchain ## build the release binary; its debug information is in a file beside it, which debuggers find
	FLOODMARK_REVISION=$$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown) cargo build --release --locked -p floodmark
	objcopy --only-keep-debug $(BINARY) $(BINARY).debug
	objcopy --strip-debug --add-gnu-debuglink=$(BINARY).debug $(BINARY) $(BINARY).stripped
	mv $(BINARY).stripped $(BINARY)
	@echo "built $(BINARY)"

test: toolchain test-servers ## run all tests, also against real servers; lists skipped tests at the end
	@scripts/test.sh

lint: toolchain ## check formatting and run clippy, with warnings denied
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

long-test: toolchain test-servers ## run all tests, with more seeds and minutes of a real Prometheus
	@FLOODMARK_LONG=1 scripts/test.sh

test-at: toolchain ## run all tests with the clock set to another time of day: AT=23:59:40 (UTC)
	scripts/test-at.sh $(or $(AT),23:59:40)

sim: toolchain ## simulate crashes and faults: SEEDS=10000 seeds from FROM=0 on, or one SEED=7 with all steps; FAULT=resends for only this fault
	cargo run --quiet --locked --bin sim -- $(if $(FAULT),--fault $(FAULT)) $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000) --from $(or $(FROM),0))

bench: toolchain ## run micro-benchmarks of the hot path
	cargo bench --locked -p protocol -p head -p journal -p query -p tables -p lab

fuzz: toolchain ## fuzz each target for a minute (needs cargo-fuzz and a nightly toolchain)
	cd fuzz && for target in $$(cargo fuzz list); do cargo +nightly fuzz run $$target -- -max_total_time=60 || exit 1; done

test-servers: ## install the servers that tests talk to
	@scripts/test-servers.sh

.PHONY: toolchain
toolchain:
	@command -v cargo >/dev/null || { echo "Rust is needed: https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null && command -v make >/dev/null || { \
	  echo "a C compiler and make are needed (for jemalloc): apt-get install -y build-essential"; exit 1; }

clean: ## remove what was built
	cargo clean
