# One command per intent, the same at the desk and in CI.
.PHONY: run build test check docs bench torture

# Where the tests and the bench find the built-in model's weights.
MODELS = $(CURDIR)/target/models

# Builds the server, gets the built-in model if no other is configured, says hello to it and serves on the default port.
run: build
	./target/release/nexus3 serve --greet

build:
	cargo build --release --locked -p nexus3

# Everything that can fail: unit, property and end-to-end tests, each against real parts.
# The weights that they run are fetched once, by the program that was just built.
test:
	cargo test --locked --workspace --no-run
	NEXUS3_MODELS=$(MODELS) ./target/debug/nexus3 model pull
	cargo test --locked --workspace

# Formatting, lints and the arrows between the crates.
check:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	.ci/arrows

# Writes docs/rpc.md from the method table.
docs:
	cargo build --locked -q -p nexus3
	./target/debug/nexus3 schema --markdown > docs/rpc.md

# Measures the server against bare baselines in the same run.
bench:
	cargo build --release --locked -p nexus3 -p nexus-bench
	NEXUS3_MODELS=$(MODELS) ./target/release/nexus3 model pull
	NEXUS3_MODELS=$(MODELS) ./target/release/nexus-bench

# Kills the server so many times, breaks its store and its disk, shares its home, and checks what it had answered. A
# short form is part of `make test`. SEED=… repeats the choices of a run.
KILLS ?= 1000
torture:
	cargo build --release --locked -p nexus3 -p nexus-torture
	./target/release/nexus-torture --program ./target/release/nexus3 --kills $(KILLS) $(if $(SEED),--seed $(SEED))
