"""Shared set-up: what makes XLA, BLAS and Python quick here, and which tests go to the same worker."""

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# One thread for XLA, its compiler and BLAS, so that two test workers do not fight for two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A function that is compiled in one piece takes less time in all than in the pieces that threads would share. XLA's
# newer fusion emitters double the time of compiling; the library does without them too.
FLAGS = "--xla_cpu_multi_thread_eigen=false --xla_cpu_parallel_codegen_split_count=1"
FLAGS += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"
os.environ.setdefault("MPLBACKEND", "Agg")
# How busy the machine is shows nowhere. Compiled code is kept as it is for users, but in a new folder for every run of
# the tests: what one process has compiled, its workers and the programs that they start need not compile again.
os.environ["DALEMBERT_QUIET"] = "1"
if "PYTEST_XDIST_WORKER" not in os.environ:
    _KEPT = tempfile.TemporaryDirectory(prefix="dalembert-tests-")
    os.environ["DALEMBERT_CACHE"] = _KEPT.name
# Tracing makes objects by the million that live on; looking through them every 700 takes a twentieth of the time.
gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True)
def changed_library(request: pytest.FixtureRequest) -> None:
    """A test that changes the library neither leaves what it compiles to others nor takes theirs, and its runs go the
    usual way, however often the same system has run before."""
    if "monkeypatch" in request.fixturenames:
        patch = request.getfixturevalue("monkeypatch")
        patch.setenv("DALEMBERT_CACHE", "0")
        patch.setattr("dalembert.simulation.again.SECONDS", -1.0)


HERE = Path(__file__).parent
# Files that look at the same runs, or compile the same loops, each made once in a process. Every other file is a
# group of its own.
TOGETHER = {
    "pages": ("docs/test_build",),
    "report": (
        "studies/test_reproduce",
        "studies/test_reduction",
        "studies/test_edla",
        "studies/test_ferraro",
    ),
    "audits": ("laws/test_audit", "units/test_broken_methods", "studies/test_errata"),
    "reductions": ("equations/test_reduction", "laws/test_reduction", "laws/test_reduced_geometry"),
    "coupled": tuple(
        f"studies/test_{x}"
        for x in ("action_angle", "cvt", "exponents", "latitude", "resonance", "structure")
    ),
    "states": (
        "equations/test_states",
        "laws/test_order",
        "laws/test_reversible",
        "laws/test_frame_gradient",
    ),
    "discrete": ("equations/test_discrete", "laws/test_discrete_mechanics", "units/test_group_runs"),
    "time": ("equations/test_variable_steps", "laws/test_variable_steps", "laws/test_time"),
}
GROUPS = {file: group for group, files in TOGETHER.items() for file in files}


# Files that take a few seconds each, and together see most of the library: `make check`.
CORE = (
    "laws/test_closed_forms",
    "laws/test_composition",
    "laws/test_leapfrog",
    "laws/test_multipliers",
    "properties/test_random_systems",
    "units/test_animation",
    "units/test_bad_input",
    "units/test_bench",
    "units/test_diagnostic_inputs",
    "units/test_documents",
    "units/test_ensemble",
    "units/test_newton",
    "units/test_scene",
    "units/test_series",
    "units/test_shapes",
    "units/test_simulate",
    "units/test_sincos",
    "units/test_storage",
    "units/test_sweep_spec",
    "units/test_traits",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m core` reads only the files that it runs, because every process would have to read all of them first."""
    if config.option.markexpr != "core" or not collection_path.name.startswith("test_"):
        return None
    return name_of(collection_path) not in CORE or None


def name_of(path: Path) -> str:
    """The path of a file of tests as the lists above have it."""
    return path.relative_to(HERE).with_suffix("").as_posix()


def group_of(item: pytest.Item) -> str:
    """Files of one group follow each other; `--dist loadfile` keeps a file in one process."""
    file = name_of(item.path)
    return GROUPS.get(file, file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if name_of(item.path) in CORE:
            item.add_marker("core")
    # What takes longest begins first, so that no worker is left with it at the end.
    ranks = {group: rank for rank, group in enumerate(TOGETHER)}
    items.sort(key=lambda item: ranks.get(group_of(item), len(ranks)))


@pytest.fixture(scope="module", autouse=True)
def unoptimised(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where nearly all the time goes into compiling, XLA's optimisations take longer than what they gain."""
    import jax

    name = "jax_disable_most_optimizations"
    before = jax.config.values[name]
    jax.config.update(
        name, before or request.path.stem in ("test_reduction", "test_reduced_geometry", "test_actions")
    )
    yield
    jax.config.update(name, before)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a scheduler with one worker, for sweeps that need not start their own."""
    from dalembert.sweeps.scheduling import local_cluster

    with local_cluster(1) as cluster:
        yield cluster.scheduler_address


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # what is imported stays: it need not be looked through


def pytest_configure() -> None:
    """Every result in the tests has the shapes that its signature says."""
    import shapes

    shapes.install()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seed of the random systems, by which a failure can be repeated; hypothesis prints its own examples."""
    from properties.attack import SEED

    terminalreporter.write_line(
        f"random systems: seed {SEED}; ATTACK_SEED={SEED} repeats them, another number draws others"
    )
