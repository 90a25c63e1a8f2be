# The commands of the project; each installs what it needs first.
# uv comes by pip where it is missing, into a folder of its own beside the environment.
.DEFAULT_GOAL := help
.PHONY: help install demo demo-sites serve chromium prometheus test test-all test-rest quick check types facts \
        bench prove openapi docs image

export OMP_NUM_THREADS ?= 1
# Else every process that tests start would compile all that it imports: some containers set this.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
PORT ?= 8000
BASE ?= main
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
INSTALLED := $(VENV)/.installed
# One process more than there are processors: a test that waits for a service leaves its own idle.
PYTEST := $(BIN)/pytest -n $(shell echo $$(( $$(nproc 2>/dev/null || echo 2) + 1 ))) --dist loadscope --no-loadscope-reorder
USUAL := not (prove or costly)
LAWS := $(addprefix tests/core/,manifolds/test_laws.py privacy/test_gate.py privacy/test_cost.py test_pinned_estimates.py)

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED) ## the environment from uv.lock in ./.venv

# An environment for it takes three times as long, and is made where Python has no pip of its own.
.uv/bin/uv:
	$(PYTHON) -m pip install --quiet --target .uv "uv>=0.9" 2> /dev/null \
	  || { $(PYTHON) -m venv --clear .uv && .uv/bin/pip install --quiet "uv>=0.9"; }

$(INSTALLED): uv.lock pyproject.toml hatch_build.py $(shell find core -name '*.c') $(filter .uv/bin/uv,$(UV))
	$(UV) sync --locked --quiet --python $(PYTHON)
	@touch $@

demo: install ## the main job on real data, start to end
	@$(BIN)/privest demo

demo-sites: install ## a hub and three sites on real data, each with its own ledger and key
	@$(BIN)/privest demo --sites

serve: install ## the service on this machine
	$(BIN)/privest serve --port $(PORT)

# Debian's, for the tests in tests/service/dashboard, which are skipped where it cannot be had. The one without
# windows takes a third of the time of the other, which serves where it is all there is.
chromium:
	@command -v chromium-headless-shell > /dev/null \
	  || { PATH="$$PATH:/usr/sbin:/sbin" && export DEBIAN_FRONTEND=noninteractive && [ "$$(id -u)" = 0 ] \
	    && apt-get update -qq \
	    && apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-dejavu-core; } \
	    > /dev/null 2>&1 \
	  || command -v chromium chromium-browser google-chrome > /dev/null \
	  || echo "no Chromium: the tests of pages are skipped (apt-get install chromium-headless-shell)"

# Debian's, unpacked and not installed: nothing of it is started, and it takes no root. For the tests of alerts and
# dashboards that run it, which are skipped where it cannot be had.
prometheus: install
	@command -v promtool > /dev/null || test -x $(VENV)/prometheus/usr/bin/promtool \
	  || { apt-get update -qq; rm -rf $(VENV)/prometheus && mkdir $(VENV)/prometheus && cd $(VENV)/prometheus \
	    && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb; } > /dev/null 2>&1 \
	  || echo "no Prometheus: the tests that run it are skipped (apt-get install prometheus)"

test: install chromium prometheus ## every law, route and page, and one of each kind that takes long
	$(PYTEST) --ignore tests/lint -m "$(USUAL)" --durations=10

test-all: check test test-rest ## everything but the long proofs: what a change of many parts needs

test-rest: install chromium prometheus ## what `make test` leaves out of that, or what MINUTES=… allow of it
	$(PYTEST) --ignore tests/lint -m "costly and not prove" --durations=10 \
	  $(if $(MINUTES),--minutes $(MINUTES) --order $(shell git rev-parse HEAD 2>/dev/null || echo any))

quick: install ## laws of the core, and the tests of what changed since BASE (main)
	@changed=$$($(BIN)/python scripts/changed-tests $(BASE)) && $(PYTEST) -m "$(USUAL)" --durations=5 $(LAWS) $$changed

check: install ## lint, types, imports, interface, licences, Dockerfile, commits, how code is written
	@$(MAKE) --no-print-directory --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) types facts

types:
	$(BIN)/pyright

facts:
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports --no-cache > .import-report || (cat .import-report; rm -f .import-report; exit 1)
	@rm -f .import-report
	$(BIN)/privest openapi | diff - openapi.yaml
	$(BIN)/datamodel-codegen --check
	$(BIN)/python scripts/client-methods --check
	$(BIN)/python scripts/breaking-changes
	$(BIN)/python scripts/check-licences
	$(BIN)/hadolint Dockerfile
	$(BIN)/python scripts/check-commits
	$(BIN)/pytest tests/lint

openapi: install ## write openapi.yaml anew, and what the client has of it
	$(BIN)/privest openapi > openapi.yaml
	$(BIN)/datamodel-codegen
	$(BIN)/python scripts/client-methods

bench: install ## timings and accuracy, into benchmarks/results and the pages that show them
	$(UV) run --isolated --locked --quiet --group tables python -m benchmarks

prove: install ## the long proofs
	$(PYTEST) -m prove

docs: install ## the site, into site/; it needs no network and can be read from the disk
	$(BIN)/python scripts/site/write_pages.py .pages
	$(BIN)/zensical build --strict

image: install ## the container's image, built, run and proven without a Docker engine, where that can be done
	@$(PYTHON) scripts/prove-image
