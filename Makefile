# Needs only python3 (3.11 or newer), pip and make. `make` lists the targets.

PYTHON ?= python3
VENV ?= .venv
PYTHONS ?= python3.11 python3.12 python3.13

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

version := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
bin := $(VENV)/bin
ready := $(VENV)/.ready-$(version)
pytest = $(bin)/python -m pytest
# One more than the number of cores, because many tests wait for a process to start or to end.
workers := $(shell expr $$(nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2) + 1)
# The tests start Python hundreds of times: without its cache, each start compiles rlm again.
unexport PYTHONDONTWRITEBYTECODE
pip_flags := --quiet --no-input --disable-pip-version-check

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "Variables: PYTHON=$(PYTHON) VENV=$(VENV) PYTHONS=\"$(PYTHONS)\" ARGS=\"options for pytest\""

# -- setting up -----------------------------------------------------------------------------------

.PHONY: setup
setup: $(ready) ## create .venv from the hashed lock (quick if nothing changed)

$(ready): requirements/dev.txt pyproject.toml .ci/venv
	@rm -f $(VENV)/.ready-*
	@echo "setting up $(VENV) with Python $(version)"
	@sh .ci/venv $(PYTHON) $(VENV)
	@$(bin)/python -m pip install $(pip_flags) --require-hashes -r requirements/dev.txt
	@$(bin)/python -m pip install $(pip_flags) --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: lock
lock: ## write requirements/*.txt from pyproject.toml (UPGRADE=1 takes newer versions)
	@test -x $(bin)/python || sh .ci/venv $(PYTHON) $(VENV)
	@test -x $(bin)/uv || $(bin)/python -m pip install $(pip_flags) uv
	@$(bin)/python requirements/lock.py $(if $(UPGRADE),--upgrade)

# -- daily work ----------------------------------------------------------------------------------

demo_venv := build/venv-demo

$(demo_venv)/.ready-$(version): requirements/core.txt .ci/demo-venv .ci/venv
	@rm -f $(demo_venv)/.ready-*
	@echo "setting up $(demo_venv) with Python $(version): only what running needs"
	@sh .ci/demo-venv $(PYTHON) $(demo_venv)
	@touch $@

.PHONY: demo
demo: $(demo_venv)/.ready-$(version) ## play a scripted run over 10 MB, without a key; MODEL=provider/model uses a model
	@$(demo_venv)/bin/python demo.py $(if $(filter command,$(origin MODEL)),--model $(MODEL),--scripted)

.PHONY: test
test: $(ready) ## run the tests, in parallel
	@$(pytest) -n $(workers) --dist loadgroup -m "not heavy" $(ARGS)

.PHONY: test-load
test-load: $(ready) ## repeat tests that wait for time or a process, 50 times each (ROUNDS=), idle and under load: hours
	@$(bin)/python -m tests.under_load --rounds $(or $(ROUNDS),50) $(ARGS)

.PHONY: check check-ruff check-mypy check-ty check-lock
check: check-ruff check-mypy check-ty check-lock ## check lint, format, types (mypy strict, ty) and that locks are up to date

check-ruff: $(ready)
	@$(bin)/ruff check .
	@$(bin)/ruff format --check .

check-mypy: $(ready)
	@$(bin)/mypy

check-ty: $(ready)
	@$(bin)/ty check --python $(VENV)

check-lock: $(ready)
	@$(bin)/python requirements/lock.py --check

.PHONY: fmt
fmt: $(ready) ## apply ruff's fixes and format
	@$(bin)/ruff check --fix-only --quiet .
	@$(bin)/ruff format .

.PHONY: docs
docs: $(ready) ## generate the pages and schemas that are made from the code
	@$(bin)/python docs/reference/generate.py
	@$(bin)/python docs/reference/promises.py
	@$(bin)/python tools/event_schema.py

.PHONY: site build/venv-site
site: build/venv-site ## build the documentation site in build/site/html
	@build/venv-site/bin/python tools/site.py

build/venv-site:
	@sh .ci/venv $(PYTHON) $@
	@$@/bin/python -m pip install $(pip_flags) --require-hashes -r requirements/site.txt

# -- heavier tests; each target can run alone -----------------------------------------------------

# test-clone is first: it runs all of `make test`, in a clean place, on this Python.
heavy_parts := test-clone test-heavy test-documents test-data test-places test-corpus test-sdks test-adapters test-server-clients test-environments test-clouds test-ray test-docker test-browser test-site test-notebook \
	test-pythons test-fuzz test-sandbox-docker test-gateway-image test-llm-plugin test-eliza \
	test-acp test-dspy test-harbor test-inspect test-pydantic-ai test-verifiers test-training test-seeds

.PHONY: test-all
test-all: $(ready) ## run every test target, then print a summary with every skip: hours
	@MAKE="$(MAKE)" PYTHONS="$(filter-out python$(version),$(PYTHONS))" sh .ci/test-all $(heavy_parts)

.PHONY: $(heavy_parts)
test-heavy: $(ready) ## run the tests marked heavy
	@sh .ci/unless-empty "no test is marked heavy" $(pytest) -n 2 --dist loadgroup -m heavy --ignore=tests/seeds $(ARGS)

documents := build/venv-documents

test-documents: ## test PDF, Office, EPUB and Outlook files with the real libraries
	@sh .ci/venv $(PYTHON) $(documents)
	@$(documents)/bin/python -m pip install $(pip_flags) --require-hashes -r requirements/documents.txt
	@$(documents)/bin/python -m pip install $(pip_flags) --no-deps --no-build-isolation -e .
	@$(documents)/bin/python -m pytest tests/context/documents $(ARGS)

data := build/venv-data

test-data: ## test tables and databases with the real DuckDB, PyArrow, pandas, polars and PostgreSQL
	@sh .ci/venv $(PYTHON) $(data)
	@$(data)/bin/python -m pip install $(pip_flags) --require-hashes -r requirements/data.txt
	@$(data)/bin/python -m pip install $(pip_flags) --no-deps --no-build-isolation -e .
	@$(data)/bin/python -m pytest tests/data $(ARGS)

# Azurite, which stands for Azure's storage, needs Node.
test-places: build/venv-places ## test files elsewhere: the real s3fs, gcsfs, adlfs and huggingface_hub with servers of this machine
	@if command -v npm >/dev/null; then cd tests/data/places/azurite && npm ci --ignore-scripts --silent; fi
	@build/venv-places/bin/python -m pytest tests/data/places $(ARGS)

test-corpus: build/venv-corpus ## test corpora larger than memory with the real tantivy: updates, kills, damage, patterns
	@build/venv-corpus/bin/python -m pytest tests/data/corpus $(ARGS)

adapters := build/venv-litellm build/venv-local-model build/venv-otel
sdks := build/venv-sdks
server_clients := build/venv-server-clients
llm_plugin := build/venv-llm-plugin
integrations := build/venv-acp build/venv-dspy build/venv-harbor build/venv-inspect build/venv-pydantic-ai build/venv-verifiers
browser := build/venv-browser
notebook := build/venv-notebook
corpus := build/venv-corpus
places := build/venv-places
local_model := build/models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf

# WebAssembly needs a newer Python than the rest.
environments := build/venv-environments
environments_python := $(shell sh .ci/find-python python3.13 python3.12 $(PYTHON))
clouds := build/venv-daytona build/venv-e2b build/venv-modal build/venv-prime
ray := build/venv-ray
$(environments): PYTHON := $(environments_python)
# So does Harbor.
build/venv-harbor: PYTHON := $(environments_python)

.PHONY: test-local-model $(adapters) $(sdks) $(server_clients) $(llm_plugin) $(integrations) $(browser) $(notebook) $(corpus) $(places) $(environments) $(clouds) $(ray)
$(adapters) $(sdks) $(server_clients) $(llm_plugin) $(integrations) $(browser) $(notebook) $(corpus) $(places) $(environments) $(clouds) $(ray): build/venv-%:
	@sh .ci/venv $(PYTHON) $@
	@$@/bin/python -m pip install $(pip_flags) --require-hashes -r requirements/$*.txt
	@$@/bin/python -m pip install $(pip_flags) --no-deps --no-build-isolation -e .

test-adapters: $(adapters) ## test the adapters with the real litellm, llm, xllamacpp and OpenTelemetry
	@build/venv-litellm/bin/python -m pytest tests/clients/test_litellm.py $(ARGS)
	@build/venv-local-model/bin/python -m pytest tests/clients/test_llm.py tests/clients/test_gguf.py $(ARGS)
	@build/venv-otel/bin/python -m pytest tests/records/recorders/test_telemetry.py tests/records/recorders/test_telemetry_runs.py tests/records/recorders/test_genai.py $(ARGS)
	@build/venv-otel/bin/python -m pytest tests/_util/test_patterns.py $(ARGS)

in_environments := tests/chat/test_environments.py tests/environments/test_wasm.py tests/environments/test_ipython.py \
	tests/environments/test_inprocess.py tests/worker/test_ipython_shell.py

test-environments: $(environments) ## run both suites in the wasm and ipython environments
	@$(environments)/bin/python -m pytest -n auto $(in_environments) $(ARGS)

of_sdks := tests/environments/clouds/test_signatures.py tests/environments/clouds/test_real_sdks.py

test-clouds: $(clouds) ## test modal, prime, e2b and daytona against their real SDKs, without an account
	@for each in $(clouds); do $$each/bin/python -m pytest $(of_sdks) $(ARGS) || exit 1; done

test-ray: $(ray) ## test the ray environment on a local cluster: both suites, lost nodes, killed actors
	@$(ray)/bin/python -m pytest tests/ray $(ARGS)

test-docker: $(environments) ## test the docker environment with a real engine (root starts one if none answers)
	@sh .ci/with-docker $(environments)/bin/python $(environments)/bin/python -m pytest tests/docker $(ARGS)

# Other engines, each in its own environment without rlm.
peers := build/venv-bench-dspy build/venv-bench-rlms
of_bench = --revision "$$(git describe --always --dirty 2>/dev/null)" --python rlm=$(bin)/python \
	--python rlms=build/venv-bench-rlms/bin/python --python dspy=build/venv-bench-dspy/bin/python

.PHONY: bench bench-quick $(peers)
$(peers): build/venv-%:
	@sh .ci/venv $(PYTHON) $@
	@$@/bin/python -m pip install $(pip_flags) --require-hashes -r requirements/$*.txt

bench: $(ready) $(peers) ## measure the engine next to rlms and dspy: 20 minutes on an idle machine
	@$(bin)/python benchmarks/engine.py $(of_bench) --publish benchmarks/results $(ARGS)

bench-quick: $(ready) $(peers) ## the same at tiny sizes, only to see that it runs
	@$(bin)/python benchmarks/engine.py $(of_bench) --quick --fresh --record build/bench/quick.json --publish build/bench $(ARGS)

.PHONY: bench-answers
bench-answers: $(ready) ## measure wrong labels against tokens with a model that makes mistakes: 10 minutes, no key
	@$(bin)/python benchmarks/answers.py --publish benchmarks/results $(ARGS)

.PHONY: test-live check-environments bench-environments
test-live: build/venv-$(ENV) ## test ENV=modal|prime|e2b|daytona with your account (paid)
	@RLM_LIVE_ENV=$(ENV) build/venv-$(ENV)/bin/python -m pytest -s -W default --confcutdir=tests/live tests/live/live_environments.py $(ARGS)

local_environments := local docker wasm ipython agent inprocess

check-environments: $(environments) ## print one table of every check and attack in every environment available here
	@sh .ci/with-docker $(environments)/bin/python sh -c '$(environments)/bin/rlm env check $(local_environments) --attacks \
		--option docker.image=$$TEST_DOCKER_IMAGE --option docker.python=$$TEST_DOCKER_PYTHON $(ARGS)'

bench-environments: $(environments) ## measure the environments next to each other
	@sh .ci/with-docker $(environments)/bin/python sh -c '$(environments)/bin/python benchmarks/environments.py $(local_environments) \
		--option docker.image=$$TEST_DOCKER_IMAGE --option docker.python=$$TEST_DOCKER_PYTHON $(ARGS)'

test-sdks: $(sdks) ## test the fake server with the providers' own SDKs
	@$(sdks)/bin/python -m pytest -m heavy tests/testing/fake_server/test_real_sdks.py $(ARGS)

of_server := tests/server/test_openai_client.py tests/server/test_command_clients.py tests/server/test_fuzz.py

test-server-clients: $(server_clients) ## test rlm serve with the openai package, llm, curl and schemathesis
	@$(server_clients)/bin/python -m pytest -m heavy $(of_server) $(ARGS)

eliza := build/venv-eliza build/venv-eliza-upstream
without_engine := tests/test_config.py tests/test_generation.py tests/test_server_fuzz.py tests/test_stub.py tests/test_upstream_adapter.py

.PHONY: $(eliza)
$(eliza): build/venv-%:
	@sh .ci/venv $(PYTHON) $@
	@$@/bin/python -m pip install $(pip_flags) --require-hashes -r requirements/$*.txt
	@$@/bin/python -m pip install $(pip_flags) --no-deps --no-build-isolation -e plugins/plugin-rlm

test-eliza: $(eliza) ## test the elizaOS plugin on the real runtime, with both engines, and from wheels
	@build/venv-eliza/bin/python -m pip install $(pip_flags) --no-deps --no-build-isolation -e .
	@cd plugins/plugin-rlm && MYPYPATH=tests ../../build/venv-eliza/bin/mypy elizaos_plugin_rlm examples tests && ../../build/venv-eliza/bin/ruff check elizaos_plugin_rlm
	@cd plugins/plugin-rlm && ../../build/venv-eliza/bin/ty check --project . --python ../../build/venv-eliza elizaos_plugin_rlm examples tests
	@cd plugins/plugin-rlm && ../../build/venv-eliza/bin/python -m pytest --ignore tests/test_upstream.py $(ARGS)
	@cd plugins/plugin-rlm && ../../build/venv-eliza-upstream/bin/python -m pytest tests/test_upstream.py $(without_engine) $(ARGS)
	@cd plugins/plugin-rlm && ../../build/venv-eliza/bin/python -m pytest -m installed tests/test_installed.py $(ARGS)

test-llm-plugin: $(llm_plugin) ## test plugins/llm-rlm with the real llm, and from wheels
	@$(llm_plugin)/bin/python -m pip install $(pip_flags) --no-deps --no-build-isolation -e plugins/llm-rlm
	@cd plugins/llm-rlm && ../../$(llm_plugin)/bin/mypy && ../../$(llm_plugin)/bin/ty check --python ../../$(llm_plugin)
	@cd plugins/llm-rlm && ../../$(llm_plugin)/bin/python -m pytest -n 2 $(ARGS)

test-acp: build/venv-acp ## test plugins/recursivelm-acp with the client of the real SDK, and from wheels
test-dspy: build/venv-dspy ## test plugins/recursivelm-dspy with the real dspy, and from wheels
test-inspect: build/venv-inspect ## test plugins/recursivelm-inspect with the real inspect_ai, and from wheels
test-pydantic-ai: build/venv-pydantic-ai ## test plugins/recursivelm-pydantic-ai with the real Pydantic AI, and from wheels
test-verifiers: build/venv-verifiers ## test plugins/recursivelm-verifiers with the real verifiers, and from wheels

# Each checks and tests plugins/recursivelm-NAME in build/venv-NAME.
test-acp test-dspy test-inspect test-pydantic-ai test-verifiers: test-%:
	@build/venv-$*/bin/python -m pip install $(pip_flags) --no-deps --no-build-isolation -e plugins/recursivelm-$*
	@cd plugins/recursivelm-$* && ../../build/venv-$*/bin/mypy && ../../build/venv-$*/bin/ty check --python ../../build/venv-$*
	@cd plugins/recursivelm-$* && ../../build/venv-$*/bin/python -m pytest $(ARGS)

# Its trials run in containers, and one test starts `rlm acp`.
test-harbor: ## test plugins/recursivelm-harbor with the real harbor and Docker, and from wheels (Python 3.12 or newer)
	@if $(environments_python) -c 'import sys; sys.exit(sys.version_info < (3, 12))'; \
	then $(MAKE) --no-print-directory test-harbor-here; \
	else echo "SKIP the tests of recursivelm-harbor: harbor needs Python 3.12 or newer"; fi

.PHONY: test-harbor-here
test-harbor-here: build/venv-harbor
	@build/venv-harbor/bin/python -m pip install $(pip_flags) --no-deps --no-build-isolation -e plugins/recursivelm-acp -e plugins/recursivelm-harbor
	@cd plugins/recursivelm-harbor && ../../build/venv-harbor/bin/mypy && ../../build/venv-harbor/bin/ty check --python ../../build/venv-harbor
	@cd plugins/recursivelm-harbor && ../../build/venv-harbor/bin/python -m pytest -m "not docker" $(ARGS)
	@cd plugins/recursivelm-harbor && sh ../../.ci/with-docker ../../build/venv-harbor/bin/python ../../build/venv-harbor/bin/python -m pytest -m docker $(ARGS)

training := build/venv-training

# Without dependencies of dependencies: accelerate wants torch, and nothing is trained here.
test-training: ## test exported training rows with the real TRL and datasets
	@sh .ci/venv $(PYTHON) $(training)
	@$(training)/bin/python -m pip install $(pip_flags) --no-deps --require-hashes -r requirements/training.txt
	@$(training)/bin/python -m pip install $(pip_flags) --no-deps --no-build-isolation -e .
	@$(training)/bin/python -m pytest tests/training $(ARGS)

test-browser: $(browser) ## rebuild the viewer's page and test it in Chromium (needs Node; installs Debian's chromium)
	@sh .ci/browser-tools
	@cd visualizer && npm ci && npm test && npm run build
	@test -z "$$(git status --porcelain -- src/rlm/viewer/static)" || { echo "test-browser: src/rlm/viewer/static differs from what visualizer/ builds: commit the new build"; exit 1; }
	@$(browser)/bin/python -m pytest tests/browser $(ARGS)

test-notebook: $(notebook) ## test what notebooks show in a real Jupyter kernel, and take pictures of it in Chromium
	@sh .ci/browser-tools
	@$(notebook)/bin/python -m pytest tests/notebook $(ARGS)
	@$(notebook)/bin/python tools/notebooks.py --check

test-site: site $(browser) ## build the documentation site and test it in Chromium: search, both themes, no request to elsewhere
	@sh .ci/browser-tools
	@$(browser)/bin/python -m pytest tests/site $(ARGS)

test-local-model: build/venv-local-model ## download a small model (0.5 GB) and test with it: minutes
	@build/venv-local-model/bin/python tools/local_model.py $(local_model)
	@nice build/venv-local-model/bin/python -m pytest -s tests/local_model $(ARGS)

test-pythons: ## run the tests on each of PYTHONS that is installed
	@MAKE="$(MAKE)" sh .ci/test-pythons $(PYTHONS)

# How long the hostile worker attacks the host side of each environment.
FUZZ_SECONDS ?= 300

test-fuzz: $(ready) ## run property tests with more examples, then a hostile worker for FUZZ_SECONDS
	@HYPOTHESIS_PROFILE=long sh .ci/unless-empty "there is no property test" $(pytest) -n auto -m hypothesis $(ARGS)
	@$(bin)/python -m tests.environments.hostile_worker --seconds $(FUZZ_SECONDS)

test-clone: ## run make demo and make test in a fresh clone with an empty home and environment
	@sh .ci/test-clone $(PYTHON)

test-seeds: $(ready) ## run every command of the source documents in a temporary clone (needs Node)
	@$(pytest) tests/seeds $(ARGS)

.PHONY: test-originals
test-originals: $(ready) ## run programs for the reference engine on both engines, or its own tests and examples: DIR=its checkout
	@$(bin)/python -m tests.originals $(DIR)

test-sandbox-docker: $(ready) ## test the sandbox in a container with Docker's default profile
	@sh .ci/with-docker $(bin)/python sh .ci/test-sandbox-docker $(bin)/python

test-gateway-image: $(ready) ## build the gateway's Docker image from local files and test it
	@sh .ci/with-docker $(bin)/python $(bin)/python -m pytest tests/gateway_image $(ARGS)

.PHONY: clean
clean: ## remove everything that was built, including .venv
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
