# Everything one types. `make` alone says what there is.
#   PYTHON=python3.12        the interpreter the environment is made from
#   TORCH=cpu                torch's build for setup, from PyTorch's own index: cpu, cu130, auto ... (uv's --torch-backend)
#   PIP_FLAGS="..."          handed to pip and uv, as --find-links (pip's own settings are used in any case)
#   PYTEST_FLAGS="-k merge"  handed to pytest
#   TESTS=tests/session      what make test and make test-all run: files or folders, by default all
#   CHOICE="not sweep and not journey"  which tests make test and make costs choose, by their marks
#   WORKERS=3                processes that the tests are spread over; by default one more than there are cores
#   LOCK_FLAGS="--upgrade"   handed to uv when it makes constraints.txt again
#   LAB_FLAGS="--no-browser" handed to JupyterLab
#   SITE=/path/to/folder     where make site writes
#   SITE_FLAGS=--without-model  a site whose page has the simulated model only
#   SLIDES=/path/to/file     where make slides writes
#   WHEELS=/path/to/folder   where make wheels writes
#   PYTHON312=/path/to/it    the Python 3.12 of make gpu-cache, if not the path's or pyenv's
#   GPU_VENV=/path/to/folder an environment of make gpu-cache that stays, and is made if it is not there
#   RUNS="00_why_blocks"     the notebooks that make runs records, if not those whose code has changed
#   CHROMIUM=/path/to/it     the browser the tests drive, if not Debian's headless one, or /usr/bin/chromium
#   PICTURES=1               the tests in a browser keep screenshots in .artifacts/, to look at

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup bundle watch site slides wheels gpu-cache runs model models browser emulators lab demo test test-all test-fast costs pictures lint lock clean

PYTHON ?= python3
# The headless build needs a fifth less processor time than the whole browser for the same pages.
HEADLESS := /usr/bin/chromium-headless-shell
CHROMIUM ?= $(or $(wildcard $(HEADLESS)),$(wildcard /usr/bin/chromium),$(HEADLESS))
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
NPM := $(PY) -m tools.node npm
NODE_MODULES := node_modules/.package-lock.json
SITE := site
SLIDES := slides.html
WHEELS := dist
CHOICE ?= not sweep
WORKERS := auto
# Whole files go to the workers, in order: those with a browser come last in each (see tests/conftest.py).
PYTEST = $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=15 $(PYTEST_FLAGS)
STAMP := $(VENV)/.setup-done
MADE_IN := $(shell cat $(STAMP) 2>/dev/null)
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] && echo --allow-root)

export CHROMIUM
# Where the machine forbids bytecode files, each kernel and each test process compiles torch and JupyterLab again.
export PYTHONDONTWRITEBYTECODE :=

# An environment works only in the folder it was made in: a copied or moved one is made again.
ifneq ($(MADE_IN),$(CURDIR))
$(shell rm -f $(STAMP))
CLEAR := $(if $(MADE_IN),--clear)
endif

help:
	@echo "labengine: step a real LLM engine in your notebook and watch every KV block move"
	@echo
	@echo "  make lab      open JupyterLab on the first notebook  (the first time: setup and model before it)"
	@echo "  make demo     two equal prompts, one step: eight blocks, then five, in this terminal"
	@echo "  make setup    install everything into .venv          (1 to 10 minutes, once)"
	@echo "  make model    fetch and convert the default model    (about a minute, once)"
	@echo "  make models   the hybrid model too, Gemma-3-270M     (another minute; the tests need it)"
	@echo "  make browser  make sure that Chromium is there       (needed by the tests only)"
	@echo "  make test     cheap tests and journeys, in a real browser too  (seven minutes on two cores)"
	@echo "                make test TESTS=tests/session runs a part"
	@echo "  make test-fast  core, checks and the widgets' words  (half a minute)"
	@echo "  make test-all the long sweeps too, and an installation on the oldest and the newest Python there is"
	@echo "  make costs    update tests/costs.txt: what each test costs, and so which are too expensive for make test (TESTS=... a part)"
	@echo "  make pictures the README's animation, the lesson and all pictures of docs and notebooks, made again (a minute)"
	@echo "  make site     site/: a lab in a web page, course, bugs, reference, for any static host (two minutes; the first time 200 MB)"
	@echo "  make slides   slides.html: the lecturers' slides, one file that opens from disk (docs/lecturers.md)"
	@echo "  make wheels   dist/: wheels with kernels for Linux, macOS and Windows, one for all else, tried without a compiler (minutes)"
	@echo "  make gpu-cache  .gpu/: Triton's kernels compiled for an H100, without one; with a Python 3.12 (many minutes, 3 GB)"
	@echo "  make runs     the runs of notebooks with weights, which the site shows, recorded again (a minute)"
	@echo "  make lint     ruff and mypy; biome, tsc and knip for the browser half"
	@echo "  make bundle   bundle the browser half again, after a change in widgets/browser; make watch: after each change"
	@echo "  make lock     update constraints.txt, for all platforms and Pythons"
	@echo "  make clean    remove caches and test artefacts, keep .venv"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || { \
	    echo "labengine needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1)."; \
	    echo "Install one, then name it: make setup PYTHON=python3.12"; exit 1; }
	@[ -z "$(CLEAR)" ] && $(PY) -m pip --version > /dev/null 2>&1 || { \
	    echo "setup 1/4: making $(VENV) with $$($(PYTHON) --version)"; \
	    $(PYTHON) -m venv $(CLEAR) $(VENV) || { echo "No venv could be made. On Debian: apt-get install python3-venv"; exit 1; }; }
	@echo "setup 2/4: fetching uv, which installs the rest"
	@$(PIP) install --quiet $(PIP_FLAGS) "$$(grep '^uv==' constraints.txt)"
	@echo "setup 3/4: labengine and what it needs, with the versions of constraints.txt"
	@$(PY) -m tools.install $(PIP_FLAGS) $(if $(TORCH),--torch-backend=$(TORCH))
	@echo "setup 4/4: tools for the browser half"
	@$(MAKE) --no-print-directory $(NODE_MODULES) || echo "setup: goes on without the browser half's tools; make lint and make bundle fetch them"
	@printf %s "$(CURDIR)" > $@
	@echo "setup done: source $(VENV)/bin/activate, or go on with make lab, make demo, make test"

# Only `make lint`, `make bundle` and `make watch` need these tools: setup succeeds without them. Not `npm ci`: it
# insists on the builds of Biome for every platform, and some registries lack a few. The lock's digests hold here too.
$(NODE_MODULES): package-lock.json
	@$(NPM) install --no-save --ignore-scripts --no-audit --no-fund --silent

bundle watch: setup $(NODE_MODULES)
	@$(NPM) run --silent $@

site: setup $(NODE_MODULES)
	@$(PY) -m tools.site $(SITE) $(SITE_FLAGS)

slides: setup
	@$(PY) -m tools.slides $(SLIDES)
	@echo "slides: $(SLIDES) opens from disk; the arrow keys turn the pages, p prints"

wheels: setup model
	@$(PY) -m tools.wheels $(WHEELS)

gpu-cache: setup
	@$(PY) -m tools.gpu_cache

runs: setup models
	@$(PY) -m tools.site.notebook_runs $(RUNS)

model: setup
	@echo "model: SmolLM2-135M-Instruct (the first time a download of 98 MB and a conversion, about a minute)"
	@$(PY) -c "import labengine; print('model:', labengine.model_path('smollm2'))"

models: model
	@echo "models: Gemma-3-270M, under the Gemma terms of use (the first time a download of 240 MB, and half a minute)"
	@$(PY) -c "import labengine; print('models:', labengine.model_path('gemma3-270m'))"

browser:
	@[ -x "$(CHROMIUM)" ] || { [ "$(CHROMIUM)" = "$(HEADLESS)" ] && [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && { \
	    echo "browser: installing Chromium with apt-get (1 to 3 minutes)"; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-dejavu-core > /dev/null; }; } || true
	@[ -x "$(CHROMIUM)" ] || { \
	    echo "The tests drive a real browser, and there is no Chromium at $(CHROMIUM)."; \
	    echo "Install one (Debian: sudo apt-get install chromium-headless-shell fonts-dejavu-core), or name yours: make test CHROMIUM=/path/to/chromium"; \
	    exit 1; }

# Compilers and emulators: make test-all runs the kernels for ARM in QEMU and those for Windows in Wine with them, and skips
# these tests where they are missing.
FOREIGN := qemu-user-static clang gcc-aarch64-linux-gnu libc6-dev-arm64-cross wine wine64
emulators:
	@command -v qemu-aarch64-static > /dev/null && command -v aarch64-linux-gnu-gcc > /dev/null && command -v clang > /dev/null \
	    && command -v wine > /dev/null || { \
	    [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && { \
	    echo "emulators: installing QEMU, Wine, clang and the compiler for ARM with apt-get (a minute)"; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends $(FOREIGN) > /dev/null; }; } \
	    || echo "emulators: goes on without QEMU, Wine, clang or the compiler for ARM; on Debian: sudo apt-get install $(FOREIGN)"

lab: setup model
	@echo "lab: opening JupyterLab on notebooks/00_why_blocks.ipynb (Ctrl-C twice ends it)"
	@$(PY) -m jupyterlab $(AS_ROOT) --LabApp.default_url=/lab/tree/notebooks/00_why_blocks.ipynb $(LAB_FLAGS)

demo: setup model
	@$(PY) -m labengine demo

test: setup models browser
	@$(PYTEST) -m "$(CHOICE)" $(TESTS)

test-all: setup models browser emulators
	@EVERY_SEED=1 PICTURES=1 $(PYTEST) $(TESTS)

costs: setup models browser
	@$(PYTEST) -m "$(CHOICE)" --costs $(TESTS)

test-fast: setup
	@$(PY) -m pytest -n $(WORKERS) -m "not sweep" $(PYTEST_FLAGS) tests/core tests/check tests/widgets/words tests/widgets/why

pictures: setup browser
	@$(PY) docs/pictures.py
	@$(PY) docs/architecture_pictures.py
	@$(PY) docs/course_pictures.py

lint: setup $(NODE_MODULES)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(NPM) run --silent lint

lock: setup
	@$(PY) -m tools.lock $(LOCK_FLAGS)

clean:
	@rm -rf build dist .artifacts .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -path ./$(VENV) -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -prune -exec rm -rf {} +
	@echo "clean: caches and artefacts are gone; $(VENV) stays (rm -rf $(VENV) to start over)"
