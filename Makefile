# On a fresh Debian `make run` and `make test` do everything. `make help` lists the rest.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps test-deps libtorch build run test check unit bench fuzz format asan tsan tidy bench-peers soak package docs clean

JOBS ?= $(shell nproc)
RELEASE := build/release
TSAN_TESTS := base_test net_test file_test data_test launch_test codec_test runtime_test device_test comm_test train_core_test bench_test contract_local_test contract_store_test
CTEST := ctest --output-on-failure --no-tests=error

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps:
	@tools/install_deps.sh

test-deps:
	@tools/install_deps.sh --tests

libtorch: deps
	@tools/install_libtorch.sh >/dev/null || echo "LibTorch is missing: building without the trainer"

build: libtorch ## build the program: build/release/bin/horon
	@cmake --preset release -DHORON_BUILD_TESTS=OFF >/dev/null
	@cmake --build --preset release -j $(JOBS)

run: build ## install what is missing, build, train a small network on two processes
	@$(RELEASE)/bin/horon run -np 2 $(RELEASE)/bin/horon train

check: ## format, layers, sizes, names
	@tools/format.sh --check
	@python3 tools/check_layers.py
	@python3 tools/check_sizes.py
	@python3 tools/check_names.py

test: test-deps libtorch check ## install what is missing, build, run all tests
	@cmake --preset release -DHORON_BUILD_TESTS=ON
	@cmake --build --preset release -j $(JOBS)
	@$(CTEST) --test-dir $(RELEASE)

unit: test-deps libtorch ## build, run only the fast tests
	@cmake --preset release -DHORON_BUILD_TESTS=ON >/dev/null
	@cmake --build --preset release -j $(JOBS)
	@$(CTEST) --test-dir $(RELEASE) -L unit

bench: build ## measure against MPI, Gloo, PyTorch; print tables, store records in benchmarks/results
	@set -e; horon=$(RELEASE)/bin/horon; kind=$$($$horon info --kind); \
	record() { echo benchmarks/results/$$1-$$kind.$$2; }; \
	peers=$$([ ! -x $(PEERS)/bin/python ] || echo --peers $(PEERS)/bin/python); \
	$$horon bench allreduce --json $$(record allreduce json) --svg $$(record allreduce svg); \
	$$horon bench launch --json $$(record launch json); \
	$$horon bench runtime --json $$(record runtime json); \
	$$horon bench input --json $$(record input json) $$peers; \
	$$horon bench train --json $$(record train json) $$peers

fuzz: test-deps ## run each fuzzer for SECONDS=60
	@tests/fuzz/fuzz_test.sh $(CURDIR)/build/fuzz $(or $(SECONDS),60)

format: ## format all sources in place
	@tools/format.sh

# Findings of UBSan and ASan fail the test; leaks are checked.
asan: test-deps ## run the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@cmake --preset asan >/dev/null && cmake --build --preset asan -j $(JOBS)
	@$(CTEST) --test-dir build/asan -LE 'package|fuzz' -E 'huge|Huge|_[5678]_operations'

# Gloo itself is not instrumented, so findings inside it are ignored.
tsan: test-deps ## run the tests with threads under ThreadSanitizer
	@cmake --preset tsan >/dev/null && cmake --build --preset tsan -j $(JOBS) --target $(TSAN_TESTS)
	@TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=1 suppressions=$(CURDIR)/tools/tsan.supp" $(CTEST) --test-dir build/tsan -L unit -E 'Huge|install_deps|Operations/[4-7]'

tidy: test-deps ## run clang-tidy on all sources
	@cmake --preset dev -DHORON_WERROR=OFF >/dev/null
	@git ls-files 'horon/*.cc' | grep -v -e kernels_ -e _test.cc | xargs -P $(JOBS) -n 4 clang-tidy -quiet -p build/dev

package: deps ## build a relocatable tarball and a .deb in dist/
	@cmake --preset release -DHORON_BUILD_TESTS=OFF >/dev/null
	@cmake --build --preset release -j $(JOBS)
	@rm -rf dist && mkdir dist && cd $(RELEASE) && cpack -G "TGZ;DEB" -B ../../dist >cpack.log || { cat cpack.log; exit 1; }
	@rm -rf dist/_CPack_Packages && ls -l dist

docs: build ## regenerate docs/knobs.md from the table of settings
	@$(RELEASE)/bin/horon info --knobs-md > docs/knobs.md

clean: ## remove everything that was built
	@rm -rf build dist

# Programs to compare with, in a separate environment outside the checkout.
PEERS := $(or $(HORON_PEERS),$(HOME)/.cache/horon/peers)
bench-peers: ## install a Python environment with the benchmarks' peers (about 8 GB)
	@tools/install_peers.sh $(PEERS)

soak: test-deps libtorch ## run the long tests: 200 kills and resumes, 1,100 damaged checkpoints, 10 minutes of each fuzzer
	@cmake --preset release -DHORON_BUILD_TESTS=ON >/dev/null && cmake --build --preset release -j $(JOBS)
	@HORON_TEST_DAMAGE=1100 $(RELEASE)/tests/train_core_test --gtest_filter='Checkpoints.*'
	@HORON_BIN=$(CURDIR)/$(RELEASE)/bin HORON_TEST_KILLS=200 PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/train/train_test.py Kills
	@tests/fuzz/fuzz_test.sh $(CURDIR)/build/fuzz 600
