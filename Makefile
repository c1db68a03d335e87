# make quickstart   environment, then the whole road on a small real corpus
# make test         environment with the test tools, then every test that is not slow
# PYTHON=python3.12 make quickstart   takes another Python (3.11 to 3.13)

PYTHON ?= $(firstword $(foreach p,python3.13 python3.12 python3.11 python3,$(shell \
	$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $p)))
VENV := .venv

.PHONY: quickstart test slow notebooks clean

quickstart: $(VENV)/installed
	$(VENV)/bin/nmt quickstart

test: $(VENV)/installed-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/python -m pytest --numprocesses 2 --dist worksteal

slow: $(VENV)/installed-test
	$(VENV)/bin/python -m pytest -m slow

notebooks: $(VENV)/installed-test
	$(VENV)/bin/python notebooks/build.py

$(VENV)/installed: requirements.txt pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/installed-test: requirements-test.txt $(VENV)/installed
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-test.txt
	touch $@

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "nmt needs Python 3.11, 3.12 or 3.13 (TensorFlow 2.21 and its \
	companions offer no other); none was found. Name one with: make PYTHON=/path/to/python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else \
	"nmt needs Python 3.11, 3.12 or 3.13 (TensorFlow 2.21 and its companions offer no other); \
	$(PYTHON) is %d.%d" % v[:2])'
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) *.egg-info
