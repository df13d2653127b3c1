# Two commands matter: `make demo` and `make test`. Both set up what they need first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# One torch thread per test process; pytest starts two of them.
export OMP_NUM_THREADS ?= 1

.PHONY: help setup demo test test-slow soak load check format reference clean

help: ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Create .venv with everything

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

demo: $(STAMP) ## Debias SmolLM2-135M (MODEL=tiny: a shipped model) over HTTP
	env -u OMP_NUM_THREADS $(BIN)/debias demo $(if $(MODEL),--model $(MODEL))

test: $(STAMP) ## Run the suite (own PostgreSQL, Redis and S3 servers)
	$(BIN)/python -m pytest -n 2 -m 'not slow'

test-slow: $(STAMP) ## Run the long tests: kills at every point, big models
	$(BIN)/python -m pytest -m slow --timeout 900

soak: $(STAMP) ## A thousand jobs while processes are killed; writes docs/soak.md
	$(BIN)/python -m bench.soak --jobs 1000 --deployment production --write
	$(BIN)/python -m bench.soak --jobs 1000 --deployment embedded --write

load: $(STAMP) ## Ten thousand queued jobs, 200 streams; writes docs/load.md
	$(BIN)/python -m bench.load --write

check: $(STAMP) ## Lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only .

reference: $(STAMP) ## Write openapi.json and the generated pages of docs/
	$(BIN)/python -m app.cli.reference

clean: ## Remove everything that was made
	rm -rf $(VENV) build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf *.egg-info
