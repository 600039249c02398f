# The front door. `make run` and `make test` need only make, Python 3.11 to 3.13 with venv, and the
# package index; everything else is installed into .venv. `make help` lists the targets.

PYTHONS := python3 python3.13 python3.12 python3.11
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
# The client libraries that tests run, whose dependencies contradict those of $(VENV).
CLIENTS := .venv-clients
# Stores of other projects, which tests of the connectors to them run: see tests/integration/ecosystem.
ECOSYSTEM := .venv-kv-ecosystem
# A local cluster of Ray, on which tests have ranks: see tests/integration/ray_cluster.
RAY := .venv-ray
ECOSYSTEM_LIBRARIES := $(CURDIR)/$(ECOSYSTEM)/libraries/usr/lib/$(shell uname -m)-linux-gnu:$(CURDIR)/$(ECOSYSTEM)/libraries/lib/$(shell uname -m)-linux-gnu
WHEEL_TOOLS := $(VENV)/.wheel-tools
# Programs that tests need and that the package index carries: helm, redis-server, node, npm.
TOOLS := .tools
# Tests start hundreds of processes: each compiles all modules where nothing may keep them.
unexport PYTHONDONTWRITEBYTECODE
# Found after those of the machine.
export PATH := $(PATH):$(CURDIR)/$(TOOLS)/bin
# More arguments for pip, such as another index for a CPU or CUDA build of torch.
PIP_ARGS ?=
# Two at a time, file by file: what one file sets up is used by all its tests.
PARALLEL ?= -n 2 --dist loadfile
# How often a test that failed runs again. The summary lists it as RERUN: it depends on time or chance.
RERUNS ?= 0
PYTEST := $(BIN)/python -m pytest $(PARALLEL) --reruns $(RERUNS) --rerun-show-tracebacks -rR
# The worker's kernels for CPUs, compiled by the installation and whenever their sources change.
KERNELS := $(VENV)/.kernels
# Arguments for `pagewire serve` in `make run`.
ARGS ?=
# Which images `make images` builds, and more arguments for the build, such as --build-arg TORCH_INDEX_URL=...
IMAGES ?= frontend scheduler kvstore worker
IMAGE_ARGS ?=
# What `make images-test` builds and runs, and more arguments, such as --volume ...; add a worker when asked.
TEST_IMAGES ?= frontend scheduler kvstore
TEST_IMAGE_ARGS ?=

HISTORY = $(shell ls protos/history/*/contract.binpb 2>/dev/null | sort -V | tail -1)

.DEFAULT_GOAL := help

.PHONY: .venv clients kv-ecosystem ray tools help run check format test test-unit test-long test-whole test-floor simulate mutants proto wheel clean
.PHONY: images images-test
.PHONY: lint lint-format lint-rules lint-types lint-imports lint-protos

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv: $(STAMP) ## create the environment and install Pagewire with its tools

# Redone when pyproject.toml changes. An environment of an unsuitable or removed Python is replaced.
$(STAMP): pyproject.toml
	@python=; \
	suitable='import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'; \
	for candidate in $(if $(PYTHON),"$(PYTHON)",$(PYTHONS)); do \
		if "$$candidate" -c "$$suitable" >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "Pagewire needs Python 3.11 to 3.13 with venv; none of these is one: $(if $(PYTHON),$(PYTHON),$(PYTHONS)). Install one (Debian: apt-get install python3-venv) or name it: make PYTHON=/path/to/python3.12" >&2; \
		exit 1; \
	fi; \
	if ! $(BIN)/python -c "$$suitable" >/dev/null 2>&1; then \
		echo "creating $(VENV) with $$("$$python" --version)"; \
		"$$python" -m venv --clear $(VENV) || exit 1; \
	fi
	@echo "installing Pagewire and its tools into $(VENV): about 2.5 GB, some minutes the first time"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input $(PIP_ARGS) -e '.[all,dev]'
	@touch $@

# Without a compiler there are none, and torch computes.
$(KERNELS): $(wildcard services/worker/pagewire_worker/cpu_kernels/kernels/*.* services/worker/pagewire_worker/cpu_kernels/kernels/*/*) services/worker/pagewire_worker/cpu_kernels/build.py | $(STAMP)
	@$(BIN)/python -m pagewire_worker.cpu_kernels.build || true
	@touch $@

clients: $(CLIENTS)/.installed ## create the environment of the client libraries that tests run

$(CLIENTS)/.installed: tests/clients/requirements.txt | $(STAMP)
	@echo "installing client libraries into $(CLIENTS) (some minutes)"
	@$(BIN)/python -m venv --clear $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-input $(PIP_ARGS) \
		-r tests/clients/requirements.txt
	@touch $@

kv-ecosystem: $(ECOSYSTEM)/.installed ## create the environment of Mooncake Store and LMCache, for the tests of their connectors

$(ECOSYSTEM)/.installed: $(wildcard tests/integration/ecosystem/requirements*.txt) tests/integration/ecosystem/install.sh | $(STAMP)
	@echo "installing Mooncake and LMCache into $(ECOSYSTEM) (a minute)"
	@tests/integration/ecosystem/install.sh $(VENV) $(ECOSYSTEM) $(PIP_ARGS)
	@touch $@

# Blocks in stores of other projects: found by fresh cells, with stores that die, hang, are slow and lie.
CORRUPTIONS ?= 10000
.PHONY: test-kv-ecosystem
test-kv-ecosystem: $(KERNELS) $(ECOSYSTEM)/.installed ## tests against real Mooncake and LMCache servers, and CORRUPTIONS=n damaged blocks in each
	cd tests && TEST_KV_ECOSYSTEM=1 LD_LIBRARY_PATH=$(ECOSYSTEM_LIBRARIES) ../$(ECOSYSTEM)/bin/python -m pytest \
		integration/ecosystem -m "not whole"
	cd tests && LD_LIBRARY_PATH=$(ECOSYSTEM_LIBRARIES) ../$(ECOSYSTEM)/bin/python -m integration.ecosystem.damage \
		--corruptions $(CORRUPTIONS)

ray: $(RAY)/.installed ## create the environment of Ray, for the tests of ranks on its clusters

$(RAY)/.installed: tests/integration/ray_cluster/requirements.txt tests/integration/ray_cluster/install.sh | $(STAMP)
	@echo "installing Ray into $(RAY) (a minute)"
	@tests/integration/ray_cluster/install.sh $(VENV) $(RAY) $(PIP_ARGS)
	@touch $@

.PHONY: test-ray
test-ray: $(KERNELS) $(RAY)/.installed ## tests of ranks on a local cluster of Ray
	cd tests && TEST_RAY=1 ../$(RAY)/bin/python -m pytest integration/ray_cluster -m "not whole"

tools: $(TOOLS)/.installed ## install helm, redis-server and node, which tests need

$(TOOLS)/.installed: tests/tools/requirements.txt | $(STAMP)
	@echo "installing helm, redis-server and node into $(TOOLS)"
	@$(BIN)/python tests/tools/get_tools.py $(PIP_ARGS)

# Both, as far as the package index has them now: what is missing skips its tests, by name.
.PHONY: test-setup
test-setup: $(KERNELS)
	@$(MAKE) --no-print-directory $(TOOLS)/.installed || echo "some tools are missing: their tests are skipped"
	@$(MAKE) --no-print-directory $(CLIENTS)/.installed || echo "client libraries are missing: their tests are skipped"

run: $(KERNELS) ## serve the built-in model on this machine; ARGS="MODEL --port 8080" for flags
	@exec $(BIN)/pagewire serve $(ARGS)

check: lint test-unit ## what a change must pass: formats, lints, types, contracts, drift, unit tests

lint: lint-format lint-rules lint-types lint-imports lint-protos ## the part of check that runs no product code

lint-format: $(STAMP)
	$(BIN)/ruff format --check .

lint-rules: $(STAMP)
	$(BIN)/ruff check .

lint-types: $(STAMP)
	$(BIN)/mypy
	$(BIN)/mypy models/builtin
	@if command -v node >/dev/null 2>&1; then \
		echo "$(BIN)/pyright"; $(BIN)/pyright; \
	elif [ "$$PAGEWIRE_REQUIRE_TOOLS" = 1 ]; then \
		echo "pyright needs node: apt-get install nodejs" >&2; exit 1; \
	else \
		echo "pyright skipped, it needs node: apt-get install nodejs"; \
	fi

lint-imports: $(STAMP)
	$(BIN)/lint-imports

lint-protos: $(STAMP)
	cd protos && ../$(BIN)/buf lint
	cd protos && ../$(BIN)/buf format -d --exit-code
	$(if $(HISTORY),cd protos && ../$(BIN)/buf breaking --against ../$(HISTORY))
	$(BIN)/python protos/generate.py --check

format: $(STAMP) ## rewrite Python and proto files in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only .
	cd protos && ../$(BIN)/buf format -w

# TESTS: files and folders, when not all.
TESTS ?= tests
# MARKED: those marked long, too, where it is "not whole"; CI runs both at once.
MARKED ?= not long
test: test-setup ## every test but those marked long
	$(PYTEST) $(TESTS) -m "$(MARKED)"

test-unit: $(KERNELS) ## unit and architecture tests
	$(PYTEST) tests/unit tests/architecture -m "not long"

SEEDS ?= 1000
simulate: $(STAMP) ## random histories of a whole cell, SEEDS=n of them
	cd tests && ../$(BIN)/python -m simulation.run --seeds $(SEEDS)

FAULTS ?= 200
SEED ?= 1
FLAVOUR ?= plain
chaos: test-setup ## FAULTS=n faults into every process and link of a deployment, drawn by SEED; FILL=1: rare cells first
	cd tests && ../$(BIN)/python -m chaos --faults $(FAULTS) --seed $(SEED) --flavour $(FLAVOUR) $(if $(FILL),--fill)

MINUTES ?= 120
FAULT_SECONDS ?= 120
.PHONY: soak
soak: test-setup ## MINUTES=n of load and kills: slopes of memory, files, threads and latency, and a report
	cd tests && ../$(BIN)/python -m soak --minutes $(MINUTES) --fault-seconds $(FAULT_SECONDS)

mutants: $(STAMP) ## plant bugs one by one; the simulation and the tests of kernels must find each
	cd tests && ../$(BIN)/python -m simulation.mutants
	cd tests && ../$(BIN)/python -m support.poison.hunt

test-long: test-setup ## the tests marked long, but those marked whole
	$(PYTEST) tests -m "long and not whole"

# With a method of docs/decoding/speculation.md that needs no head.
METHOD ?= suffix
SPECULATED := $(addprefix tests/integration/test_,tools.py guided.py parameters.py responses.py builtin_model.py harmony.py)
.PHONY: test-speculated
test-speculated: test-setup ## tests of the API whose models run, with drafts of METHOD=suffix
	TEST_SPECULATION=$(METHOD) $(PYTEST) $(SPECULATED) -m "not long"

test-whole: test-setup ## whole products of models, backends and formats, of which others run pairs
	$(PYTEST) tests -m whole

test-floor: $(STAMP) ## the stubs on the oldest grpcio and protobuf they allow
	$(BIN)/python -m pytest tests/integration/test_runtime_floor.py

proto: $(STAMP) ## regenerate protos/gen from the .proto files
	$(BIN)/python protos/generate.py

wheel: $(WHEEL_TOOLS) ## build dist/*.whl with compiled kernels, for Linux; MACHINES="x86_64" for some processors
	$(BIN)/python services/worker/wheels/build_wheels.py $(MACHINES)
	cd tests && ../$(BIN)/python -m support.kernels.installed_wheel ../dist/*.whl

# zig, a compiler, is large: only who builds wheels gets it.
$(WHEEL_TOOLS): services/worker/wheels/requirements.txt | $(STAMP)
	@echo "installing a compiler and the tools of wheels into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input $(PIP_ARGS) -r $<
	@touch $@

# The first one that answers: the command docker may be there without its engine.
images: ## build the container images with docker, podman or buildah
	@builder=; \
	for candidate in $(if $(BUILDER),"$(BUILDER)",docker podman buildah); do \
		if $$candidate images >/dev/null 2>&1; then builder=$$candidate; break; fi; \
	done; \
	if [ -z "$$builder" ]; then echo "images are built with docker, podman or buildah; none of them works here" >&2; exit 1; fi; \
	version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); \
	revision=$$(git rev-parse HEAD 2>/dev/null || echo unknown); \
	for role in $(IMAGES); do \
		echo "$$builder build: pagewire/$$role:$$version"; \
		$$builder build -f docker/$$role.Dockerfile -t pagewire/$$role:$$version \
			--build-arg VERSION=$$version --build-arg REVISION=$$revision $(IMAGE_ARGS) . || exit 1; \
	done

.PHONY: constraints sbom audit
constraints: $(STAMP) ## pin the images' packages to those of .venv; HASHES=INDEX: and their files
	$(BIN)/python docker/inventory.py constraints docker/constraints.txt $(if $(HASHES),--hashes $(HASHES))

# Of an image: PACKAGES=file, its /opt/pagewire/requirements.txt.
PACKAGES ?=
sbom: $(STAMP) ## write dist/sbom.json, the images' packages in CycloneDX; PACKAGES=file for those of one
	$(BIN)/python docker/inventory.py sbom dist/sbom.json $(if $(PACKAGES),--list $(PACKAGES))

audit: $(STAMP) ## ask OSV for known faults of the images' packages; needs a network
	$(BIN)/python docker/inventory.py audit $(if $(PACKAGES),--list $(PACKAGES))

images-test: $(KERNELS) ## build images with buildah, as root, and run them confined
	cd tests && ../$(BIN)/python -m deploy.try_images $(TEST_IMAGES) $(TEST_IMAGE_ARGS)

clean: ## remove environments, caches and builds
	rm -rf $(VENV) $(CLIENTS) $(ECOSYSTEM) $(TOOLS) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
		.hypothesis
