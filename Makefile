# make serve: the server with a small model.  make test, make check: what a change must pass.

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3,$(shell command -v $(name))))
MODEL  ?= SmolLM2-135M-Instruct-GGUF
# Without these, the environment and the configuration file decide; the defaults are 127.0.0.1 and 13305.
HOST   ?=
PORT   ?=
# More flags for `lemonbus serve`; more arguments for pytest.
ARGS   ?=
TESTS  ?=
JOBS   ?= 4
MINUTES ?= 2
# The part of `make soak` with nodes: how many other machines, and for how many minutes.
NODES  ?= 2
NODES_MINUTES ?= 1
# A number makes `make soak` repeat the same requests and faults; without one, they are new each time.
SEED   ?=
CASES  ?= 20000
# The engines in the wheelhouse and in the Debian package.
EXTRAS ?= llamacpp

VENV   := .venv
BIN    := $(VENV)/bin
INSTALL := $(BIN)/python deploy/install.py
RECIPE := setup.cfg setup.py pyproject.toml protocol/__init__.py
FOUND  := import sys; sys.exit(sys.version_info < (3, 11))

# The tests that run with the lowest versions of all dependencies, and with the newest Python: they use every dependency.
SAMPLE ?= tests/protocol tests/workers tests/gateway tests/server tests/clients
LOWEST := build/lowest
# An environment for the programs that build packages.
BUILD  := build/tools
# The builder of the site of docs/.
DOCS  := build/mkdocs
MKDOCS := NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs
# Debian releases, the one with the newest Python first. The first one for whose Python there are all wheels is used.
NEWEST ?= sid trixie

.PHONY: help serve test shuffle properties soak exploration fuzz simulation check format bench bare container lowest newest proxies prometheus browser clients cluster helm manifests dist wheelhouse deb packages docs docs-serve clean tools
.DELETE_ON_ERROR:

help:
	@echo 'make serve   install into $(VENV), then serve $(MODEL) on http://127.0.0.1:13305'
	@echo 'make test    all tests'
	@echo 'make shuffle all tests, in a random order, because none may depend on another'
	@echo 'make properties  ten times as many inputs for each property, new ones each time'
	@echo 'make soak    random requests and faults, on one machine for MINUTES (2) and on several for NODES_MINUTES (1)'
	@echo 'make exploration  every history of the larger of the small worlds of the scheduler; many minutes'
	@echo 'make fuzz    CASES (20000) random requests made from /openapi.json, and judged by it'
	@echo 'make simulation  a day on a cluster on paper, with the real scheduler: waits, and what an event costs'
	@echo 'make check   ruff, ruff format, mypy --strict'
	@echo 'make format  ruff format, and the fixes that ruff can make'
	@echo 'make bench   measure against the engine alone'
	@echo 'make bare    the commands above on a minimal Debian, and the systemd unit; needs root, otherwise it says so'
	@echo 'make container  build and run the image of deploy/container; needs root, otherwise it says so'
	@echo 'make lowest  a part of the tests with the lowest versions of all dependencies'
	@echo 'make newest  the same part with the newest Python of Debian; needs root, otherwise it says so'
	@echo 'make proxies fetch nginx and Caddy for the tests that need them; if they are not available, it says so'
	@echo 'make prometheus  the same for Prometheus'
	@echo 'make browser install Chromium for the tests that need it; if it is not available, it says so'
	@echo 'make clients run the blocks of all pages of docs/clients, with the clients in the versions that the pages name'
	@echo 'make cluster the tests of servers over several machines, in network namespaces; they need root, otherwise they say so'
	@echo 'make helm    fetch Helm and the schemas of Kubernetes for the tests that need them; if they are not available, it says so'
	@echo 'make manifests  render deploy/kubernetes from the chart in deploy/helm'
	@echo 'make dist    dist/: the sdist and the wheel'
	@echo 'make wheelhouse  build/wheelhouse: all wheels of an installation with EXTRAS (llamacpp), their hashes, and an SBOM'
	@echo 'make deb     dist/: a package for this release of Debian or Ubuntu'
	@echo 'make packages  build these, and install them on minimal Debians; needs root, otherwise it says so'
	@echo 'make docs    build/site: the documents as a site, with its links checked; make docs-serve: the same on http://127.0.0.1:8000'
	@echo 'make screenshots take the pictures of docs/screenshots, after MINUTES (2) of requests'
	@echo 'make clean   remove everything that the others made'

serve: $(VENV)/.serve
	@exec $(BIN)/lemonbus serve $(HOST:%=--host %) $(PORT:%=--port %) --load $(MODEL) $(ARGS)

# The tests start thousands of processes, and each would compile all of lemonbus if the byte code were not kept.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(TESTS)

shuffle: export PYTHONDONTWRITEBYTECODE :=
shuffle: $(VENV)/.check
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --random-order $(TESTS)

properties: export PYTHONDONTWRITEBYTECODE :=
properties: $(VENV)/.test
	$(BIN)/python -m pytest -q -n $(JOBS) -m hypothesis --hypothesis-profile=deep --timeout 600 $(TESTS)

soak: export PYTHONDONTWRITEBYTECODE :=
soak: $(VENV)/.test
	$(BIN)/python -m pytest -q -n $(JOBS) --hypothesis-profile=deep $(SEED:%=--hypothesis-seed=%) --timeout 600 tests/supervisor/scheduler/test_scheduler_histories.py tests/supervisor/scheduler/nodes/test_node_histories.py
	REQUESTS=2000 $(BIN)/python -m pytest -q --timeout 600 tests/faults/supervisors/test_usage_after_kills.py
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(SEED:%=--seed %) $(ARGS)
	$(BIN)/python -m tests.soak --nodes $(NODES) --minutes $(NODES_MINUTES) $(SEED:%=--seed %) $(ARGS)

exploration: $(VENV)/.test
	$(BIN)/python -m tests.supervisor.scheduler.exploration

fuzz: export PYTHONDONTWRITEBYTECODE :=
fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz --cases $(CASES) $(ARGS)

simulation: $(VENV)/.test
	$(BIN)/python -m tests.simulation $(ARGS)

check: $(VENV)/.check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.check
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.test
	$(BIN)/python -m tests.benchmarks $(ARGS)

bare: $(VENV)/.test
	@$(BIN)/python -m tests.bare --serve --unit --test 'JOBS=$(JOBS)'

container: $(VENV)/.test
	@$(BIN)/python -m tests.container

lowest:
	@mkdir -p build
	@$(PYTHON) deploy/lowest.py > $(LOWEST).txt
	@PIP_CONSTRAINT=$(CURDIR)/$(LOWEST).txt $(MAKE) --no-print-directory test VENV=$(LOWEST) TESTS='$(SAMPLE) $(TESTS)'

newest: $(VENV)/.test
	@$(BIN)/python -m tests.bare $(NEWEST:%=--suite %) --test "JOBS=$(JOBS) TESTS='$(SAMPLE) $(TESTS)'"

# Into build/: no service is installed.
proxies: $(VENV)/.test
	@$(BIN)/python -m tests.support.debian_packages nginx caddy openssl

prometheus: $(VENV)/.test
	@$(BIN)/python -m tests.support.debian_packages prometheus

# It needs so many libraries that it is installed.
browser: $(VENV)/.test
	@$(BIN)/python -m tests.support.debian_packages chromium

helm: $(VENV)/.test
	@$(BIN)/python -m tests.support.kubernetes

manifests: $(VENV)/.test
	@$(BIN)/python -m tests.support.kubernetes --write

dist: $(BUILD)/.installed
	@$(BUILD)/bin/python -m deploy.packages.dist dist

wheelhouse: dist
	@$(BUILD)/bin/python -m deploy.packages.wheelhouse dist/lemonbus-$$($(PYTHON) -c 'import protocol; print(protocol.RELEASE)')-py3-none-any.whl \
	  '$(EXTRAS)' build/wheelhouse

# With Debian's own Python, which the package depends on.
deb: wheelhouse
	@/usr/bin/python3 -m deploy.packages.debian build/wheelhouse dist

packages: $(VENV)/.test
	@$(BIN)/python -m tests.packages

# Their packages come from PyPI and npm. They have gigabytes, most of which are removed after each page.
clients: $(VENV)/.clients
	CLIENTS=build/clients $(BIN)/python -m pytest -q -rs -n 2 --dist worksteal $(or $(TESTS),tests/clients/test_client_pages.py)

# Ray has 300 MB, which no other test needs.
cluster: export PYTHONDONTWRITEBYTECODE :=
cluster: $(VENV)/.cluster
	@$(BIN)/python -m tests.support.debian_packages libfaketime
	$(BIN)/python -m pytest -q -rs --timeout 300 $(or $(TESTS),tests/cluster)

screenshots: $(VENV)/.test
	@$(BIN)/python -m tests.screenshots --minutes $(MINUTES)

docs: $(DOCS)/.installed
	@$(MKDOCS) build
	@echo 'The documents: build/site/index.html'

docs-serve: $(DOCS)/.installed
	@$(MKDOCS) serve -q --livereload --watch README.md --watch ARCHITECTURE.md

clean:
	rm -rf $(VENV) build dist *.egg-info deploy/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One line names what is missing. It is make's own error, because make would add one to ours. A Python without ensurepip is enough if it has pip.
tools:
	@$(if $(shell command -v git 2>/dev/null),,$(error lemonbus needs git: sudo apt-get install git))
	@$(if $(shell { $(PYTHON) -c '$(FOUND)' && echo yes; } 2>/dev/null),,$(error \
	  lemonbus needs Python 3.11 or newer: sudo apt-get install python3.11 python3.11-venv))
	@$(if $(shell { { $(PYTHON) -c 'import venv, ensurepip' || $(PYTHON) -c 'import venv, pip'; } && echo yes; } 2>/dev/null),,\
	  $(error lemonbus needs venv: sudo apt-get install python3-venv))
	@$(if $(shell { $(PYTHON) -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' && echo yes; } 2>/dev/null),,\
	  $(error lemonbus needs libgomp.so.1: sudo apt-get install libgomp1))
	@:

$(BIN)/python: | tools
	@$(PYTHON) -m venv $(VENV) 2>/dev/null \
	  || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $@ install -q pip; }

$(BUILD)/.installed: Makefile | tools
	@$(PYTHON) -m venv $(BUILD)
	@$(BUILD)/bin/python -m pip install -qq --disable-pip-version-check 'build >= 1.2.2' 'cyclonedx-bom >= 7.0'
	@touch $@

$(DOCS)/.installed: setup.cfg deploy/install.py | tools
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python deploy/install.py 'setup.cfg[docs]' 'the builder of the documents'
	@touch $@

# Stamp files: the second time there is nothing to do. A larger installation includes the smaller ones.
$(VENV)/.serve: $(RECIPE) | $(BIN)/python
	@$(INSTALL) '.[llamacpp]' 'lemonbus and its engine'
	@touch $@

$(VENV)/.test: $(RECIPE) | $(BIN)/python
	@$(INSTALL) '.[llamacpp,test]' 'lemonbus and the packages of its tests'
	@touch $@ $(VENV)/.serve

$(VENV)/.clients: $(RECIPE) | $(BIN)/python
	@$(INSTALL) '.[llamacpp,test,clients]' 'lemonbus, the packages of its tests, and uv'
	@touch $@ $(VENV)/.test $(VENV)/.serve

$(VENV)/.cluster: $(RECIPE) | $(BIN)/python
	@$(INSTALL) '.[llamacpp,test,ray]' 'lemonbus, Ray and the packages of its tests'
	@touch $@ $(VENV)/.test $(VENV)/.serve

$(VENV)/.check: $(RECIPE) | $(BIN)/python
	@$(INSTALL) '.[llamacpp,test,dev]' 'lemonbus and the checkers'
	@touch $@ $(VENV)/.test $(VENV)/.serve
