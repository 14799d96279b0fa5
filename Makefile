# make demo   a first report
# make test   every check and test
# Both make their own virtual environment in .venv; nothing else is touched.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= 2

.PHONY: demo test lint types lit unit docs benchmark clean

demo: $(VENV)/.installed
	$(BIN)/starc compile examples/llama3-70b.sa --target mi300x-cpx

test: lint types lit unit

lint: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.tested
	$(BIN)/pyright

lit: $(VENV)/.tested
	$(BIN)/lit -q -j $(JOBS) tests/filecheck tests/e2e

unit: $(VENV)/.tested
	$(BIN)/pytest -q -n $(JOBS)

# The reference pages of docs/ from the docstrings of the code.
docs: $(VENV)/.installed
	$(BIN)/python docs/generate.py

benchmark: $(VENV)/.installed
	$(BIN)/python benchmarks/speed.py

# An editable install in strict mode: type checkers can follow it, and an added file is seen after
# the next `make`, because the stamps depend on the list of files.
SOURCES := $(sort $(wildcard starc/*.py starc/*/*.py starc/*/*/*.py starc/*/*.toml starc/*/*.lark \
  starc/validation/data/* starc/validation/data/*/* dialects/*.py \
  passes/*.py passes/*/*.py passes/*/*/*.py))

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
