"""The work of workers: they preview a spec before the sweep starts, and compute blocks. Only they start JAX."""

import math
import traceback
import warnings
from typing import Any, NamedTuple

import jax
import numpy as np

from dalembert.simulation import ensemble
from dalembert.sweeps.layout import Layout, Preview, columns_of
from dalembert.sweeps.members import members_of, parameters_of
from dalembert.sweeps.reductions import Kept, reduced
from dalembert.sweeps.spec import METHOD, STEP, Spec
from dalembert.sweeps.store import Store


def preview(entries: dict[str, Any], objects: dict[str, Any]) -> Preview:
    """Builds and checks the first trajectory of every kind, and runs a few to learn what the reductions return."""
    try:
        return _preview(Spec(entries, objects))
    except ValueError:
        raise
    except Exception as error:  # in one of the user's functions
        words = "".join(traceback.format_exception(error, limit=-3)).rstrip()
        raise ValueError(f"the first trajectories could not be run and reduced:\n{words}") from None


def _preview(spec: Spec) -> Preview:
    alone = [axis.name for axis in spec.axes if _is_alone(spec, axis)]
    kinds = [axis.size if axis.name in alone else 1 for axis in spec.axes]
    kept: dict[str, Kept] = {}
    row_bytes = 0
    for place in np.ndindex(*(min(n, 64) for n in kinds)):
        # Both ends of the dimensions along which a block extends, so that a start off the constraint shows at once.
        corners = [
            columns_of(spec, tuple(
                slice(i, i + 1) if axis.name in alone else slice(end % axis.size, end % axis.size + 1)
                for i, axis in zip(place, spec.axes, strict=True)
            ))
            for end in (0, -1)
        ]  # fmt: skip
        columns = {key: np.concatenate([corner[key] for corner in corners]) for key in corners[0]}
        first = not kept
        sol = _run(spec, columns, None if first else 1)
        if first:
            kept = reduced(sol, spec)
            row_bytes = 8 * (3 * sol.q.shape[-1] + sum(np.size(x[0, 0]) for x in sol.step_data.values()) + 8)
    variables = {
        name: {"dtype": each.values.dtype.str, "dims": list(each.dims), "sizes": list(each.values.shape[1:]),
               "attrs": each.attrs}
        for name, each in kept.items()
    }  # fmt: skip
    labels = {dim: names for each in kept.values() for dim, names in each.labels.items()}
    return Preview(alone, variables, labels, row_bytes, jax.default_backend() in ("gpu", "cuda"))


def _is_alone(spec: Spec, axis: Any) -> bool:
    """Whether trajectories with different values along this dimension cannot share a kernel call."""
    if METHOD in axis.keys or (STEP in axis.keys and spec["time"] is not None):
        return True
    texts = [values for key, values in axis.columns.items() if isinstance(values[0], str) and key != "start"]
    if texts:
        return True
    if spec["members"] is not None or axis.size < 2 or not axis.columns:
        return False
    given = parameters_of(spec, {key: np.asarray(x[:1] + x[-1:]) for key, x in axis.columns.items()})
    rest = _others(spec, axis)
    if not given or spec["instance"] is not None:
        return False
    one, other = (
        jax.tree.structure(spec.made(**rest, **{key: x[i].item() for key, x in given.items()}))
        for i in (0, 1)
    )
    return one != other


def _others(spec: Spec, axis: Any) -> dict[str, Any]:
    """The first values of the parameters swept along the other dimensions."""
    region = tuple(slice(0, 1) for _ in spec.axes)
    first = parameters_of(spec, columns_of(spec, region))
    return {key: x[0].item() for key, x in first.items() if key not in axis.keys}


def _run(spec: Spec, columns: dict[str, np.ndarray], steps: int | None = None) -> Any:
    run = members_of(spec, columns)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*no form in scalar operations.*")
        return ensemble(
            run.system, run.method, run.q0, run.v0, h=run.h, steps=steps or run.steps,
            save_every=1 if steps else run.save_every, t0=spec["t0"], vary=run.vary, threads=1,
        )  # fmt: skip


def block_values(spec: Spec, layout: Layout, block: int) -> dict[str, np.ndarray]:
    """The variables of one block, in the shape of its region."""
    region = layout.region(block)
    size = layout.size(block)
    columns = columns_of(spec, region)
    # Blocks at the edge are padded with copies of the last trajectory, so that nothing is compiled again for them.
    columns = {
        key: np.concatenate([x, np.repeat(x[-1:], layout.members - size)]) for key, x in columns.items()
    }
    shape = tuple(part.stop - part.start for part in region)
    return {
        name: np.asarray(each.values[:size]).reshape(*shape, *each.values.shape[1:])
        for name, each in reduced(_run(spec, columns), spec).items()
    }


class Done(NamedTuple):
    """What a worker reports about a block."""

    block: int
    trouble: str = ""
    """The reason why the block could not be computed; empty if it was."""
    disk: bool = False
    """Whether writing failed, which ends the sweep."""


def compute(store: str, objects: dict[str, Any], block: int) -> Done:
    """Computes a block and writes it, with its mark last; does nothing if the mark is already set."""
    opened = Store.at_work(store, objects)
    if opened.is_done(block):
        return Done(block)
    try:
        opened.begin(block)
    except OSError as error:
        return Done(block, f"{type(error).__name__}: {error}", True)
    try:
        values = block_values(opened.spec, opened.layout, block)
    except Exception as error:
        entries = "".join(traceback.format_exception(error, limit=-3))
        return Done(block, entries)
    try:
        opened.write(block, values)
    except OSError as error:
        return Done(block, f"{type(error).__name__}: {error}", True)
    except Exception as error:
        return Done(block, f"{type(error).__name__}: {error}")
    return Done(block)


def expected(layout: Layout, done: np.ndarray) -> int:
    """The number of trajectories in the blocks that are done."""
    if bool(np.all(done)):
        return math.prod(layout.shape)
    return sum(layout.size(int(i)) for i in np.flatnonzero(done))
