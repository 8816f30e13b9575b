# The commands that people and CI run; everything else is `pytest` and `labs`.
PYTEST = .venv/bin/python -m pytest

.PHONY: setup setup-test lab check test test-full bench bench-full

setup:
	@ci/setup.sh

setup-test: setup ## what only tests need
	@ci/setup.sh vagrant
	@ci/setup.sh browser

lab: setup ## the main job on the default cell; ARGS go to pytest
	$(PYTEST) suites/cgroup_atomicity $(ARGS)

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

test: check setup-test ## selftests, then a short run on real guests
	$(PYTEST) suites/selftest -q -n auto
	$(PYTEST) suites/guest suites/cgroup_atomicity -m "not full" $(ARGS)

test-full: check setup-test ## all of it: every provider check, three kernel lines, both runtimes
	$(PYTEST) suites/selftest -q -n auto
	$(PYTEST) suites/guest -q --full
	.venv/bin/labs run suites/cgroup_atomicity --kernel 6.1 --kernel 6.12 --kernel 7.3 --runtime runc --runtime crun $(ARGS) \
		|| test $$? -eq 4 # latency cannot be judged where guests are emulated
	$(PYTEST) suites/cpu_bandwidth --kernel 6.1 --kernel 6.12 --kernel 7.3 $(ARGS)
	$(PYTEST) suites/runtime_semantics --kernel 6.12 --runtime runc --runtime crun $(ARGS)
	$(PYTEST) suites/cgroup_atomicity suites/delegation --provider vagrant --kernel 6.1 $(ARGS)

bench: setup ## the lab's own figures on the default cell
	.venv/bin/python ci/bench.py 3

bench-full: setup
	.venv/bin/python ci/bench.py 20
