#!/usr/bin/env bash
# Measures build times for docs/adr/0007: cold, and after touching one file of each crate. Takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=$(mktemp -d)
trap 'rm -rf "$CARGO_TARGET_DIR"' EXIT

timed() { # what, command...
  local what=$1; shift
  local seconds
  seconds=$( { TIMEFORMAT='%R s, %U s of CPU'; time "$@" >/dev/null 2>&1; } 2>&1 )
  printf '%-40s %s\n' "$what" "$seconds"
}

timed "cold: cargo build --release -p floodmark" cargo build --release --locked -p floodmark
timed "cold: cargo test --workspace --no-run" cargo test --workspace --locked --no-run
for crate in stdx model protocol journal head query tables server lab sim floodmark; do
  main=crates/$crate/src/lib.rs
  [ -f "$main" ] || main=crates/$crate/src/main.rs
  touch "$main"
  timed "touch $crate: cargo test -p $crate --no-run" cargo test --locked -p "$crate" --no-run
  touch "$main"
  timed "touch $crate: cargo build (debug binary)" cargo build --locked -p floodmark
done
