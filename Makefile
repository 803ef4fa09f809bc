# Everything below works from a bare checkout: Python 3.11 or newer, make and g++ (or clang++).

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PYTEST_WORKERS ?= 2
CPP_FILES = $$(find benchmarks kernels runtime tests tools -name '*.h' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu')

.DEFAULT_GOAL := help
.PHONY: help demo test check campaign soak predictions bench gpu-check wheel lint format clean

help:            ## list these targets
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:[^#]*##/ -/'

demo: $(VENV)/.demo  ## train LeNet on handwritten digits; DATA=folder for MNIST's files
	$(BIN)/graphc cache --fill
	$(BIN)/python examples/digits.py $(if $(DATA),--data $(DATA))

test: $(VENV)/.test  ## run the test suite
	$(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) -m "not slow" $(ARGS)

check: $(VENV)/.dev  ## formatting, types and the tests of what changed, in two minutes
	$(BIN)/python -m tools.check

campaign: $(VENV)/.test  ## run the long tests as well; goes on where it stopped
	GRAPHC_TIER=1 $(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --resume build/campaign.txt $(ARGS)

soak: $(VENV)/.test  ## soak and fault checks in twenty minutes; ARGS=--quick for two
	$(BIN)/graphc cache --fill
	$(BIN)/python -m tools.soak $(ARGS)

predictions: $(VENV)/.test  ## predict what gpu-check measures, for an H100 and an H200; an hour
	$(BIN)/python -m tools.gpu_model.predict $(ARGS)

bench: $(VENV)/.test  ## compare with PyTorch where it is installed
	$(BIN)/python -m benchmarks.compare $(ARGS)

gpu-check:       ## check and measure on a GPU; WHEELS=folder of packages where there is no network
	$(PYTHON) -m tools.gpu_check $(if $(WHEELS),--wheels $(WHEELS)) $(ARGS)

wheel: $(VENV)/.test  ## a wheel in dist, with compiled objects inside; ARGS="--machine aarch64"
	$(BIN)/python -m tools.build_wheel dist $(ARGS)

lint: $(VENV)/.dev  ## ruff, mypy and clang-format
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## format the Python, C++ and CUDA files in place
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_FILES)

clean:           ## remove the virtual environment and what tools leave behind
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'graphc needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.11'; exit 1; }
	$(PYTHON) -m venv $(VENV)
