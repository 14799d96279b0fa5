# make demo   a first report
# make test   every check and test
# make coverage   the tests again, with the lines and branches that they reach
# make imports    the contracts of which folder may import which
# make mutation   tells whether tests notice changed lines of the core (docs/checking.md)
# All make their own virtual environment in .venv; nothing else is touched.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= 2

# Every command and every worker of the tests would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint types core lit unit imports coverage mutation docs benchmark clean

demo: $(VENV)/.installed
	$(BIN)/starc compile examples/llama3-70b.sa --target mi300x-cpx

# The type checker has one process: the files of IR run beside it.
test: $(VENV)/.tested
	$(MAKE) --no-print-directory -j 2 lint types lit
	$(MAKE) --no-print-directory unit

lint: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.tested
	$(BIN)/pyright

# The machine code of the simulator, once and not by all who find that it is missing.
core: $(VENV)/.tested
	@$(BIN)/starc compile examples/tiny.sa --gpus 1 >$(VENV)/core.log 2>&1 || { cat $(VENV)/core.log; false; }

lit: core
	$(BIN)/lit -q -j $(JOBS) tests/filecheck tests/e2e

# Workers begin with half of the files each and take from each other at the end: mostly one of them
# compiles a model for all tests that use it.
PYTEST := $(BIN)/pytest -q -n $(JOBS) --dist worksteal

unit: core
	$(PYTEST)

# From a folder without one named starc, which would hide the installed package.
imports: $(VENV)/.tested
	cd $(VENV) && bin/lint-imports --no-cache ../pyproject.toml

# Takes twice as long as the tests without it. The machine code of the simulator is not measured.
coverage: core
	$(PYTEST) --cov --cov-report=
	$(BIN)/coverage report --sort=cover

# Changes no file: mutants are handed to the tests in memory.
mutation: $(VENV)/.tested
	$(BIN)/pip install -q 'cosmic-ray>=8.4,<9'
	$(BIN)/python tools/mutation.py

# The reference pages of docs/ from the docstrings of the code.
docs: $(VENV)/.installed
	$(BIN)/python docs/generate.py

benchmark: $(VENV)/.installed
	$(BIN)/python benchmarks/speed.py

# An editable install in strict mode: type checkers can follow it, and an added file is seen after
# the next `make`, because the stamps depend on the list of files.
SOURCES := $(sort $(shell find starc dialects passes -type f -not -path '*/__pycache__/*'))

# Rewritten only when the list of files changes, so that an edit does not reinstall.
$(VENV)/.sources: FORCE
	@mkdir -p $(VENV)
	@echo '$(SOURCES)' | cmp -s - $@ || echo '$(SOURCES)' > $@

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(VENV)/.sources | $(VENV)/bin/python
	$(BIN)/pip install -q --config-settings editable_mode=strict -e .
	@touch $@

$(VENV)/.tested: pyproject.toml $(VENV)/.installed
	$(BIN)/pip install -q --config-settings editable_mode=strict -e '.[test]'
	@touch $@

.PHONY: FORCE
FORCE:

clean:
	rm -rf $(VENV) build dist starc.egg-info .pytest_cache .ruff_cache
