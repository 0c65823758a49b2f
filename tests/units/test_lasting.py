"""Names of what functions read: the same in every process, others after a change, none where nobody can know."""

import os
import subprocess
import sys
import textwrap
import types
import warnings
from pathlib import Path

import jax
import pytest

import dalembert as da
from dalembert.model import as_arrays
from dalembert.numerics import current, lasting_name
from dalembert.numerics.lasting import faults_of

PLAIN = """
    import functools
    import math
    import jax
    import jax.numpy as jnp
    import numpy as np
    import dalembert as da

    RATE, TABLE, LISTED = 2.0, np.array([1.0, 2.0, 3.0]), [1.0, {"k": (2.0, 3.0)}]

    def helper(x, power=2):
        return RATE * x**power

    def shifted(by):
        return lambda x: x + by

    moved = shifted(0.5)

    @jax.custom_jvp
    def odd(x):
        return jnp.sin(x)

    @odd.defjvp
    def _(primals, tangents):
        return jnp.sin(primals[0]), 1.0 * jnp.cos(primals[0]) * tangents[0]

    @jax.jit
    def quick(x):
        return 0.25 * jnp.sin(x) + jnp.exp(0.0 * x)

    class Other:
        factor = 4.0

        def __init__(self):
            self.inner = 5.0

        def times(self, x):
            return self.factor * self.inner * x

    other = Other()

    class Skate(da.System):
        coordinates = ("x", "y", "theta")
        slope: float = 0.3

        def lagrangian(self, q, v):
            kinetic = 0.5 * jnp.sum(v**2) + 0.0 * sum([abs(k) for k in (1, 2, 3)])
            extra = helper(q[0]) + moved(q[1]) + odd(q[2]) + other.times(q[0]) + jnp.asarray(TABLE) @ q + LISTED[0]
            extra = extra + quick(q[0])
            return kinetic - self.slope * q[1] - functools.partial(helper, power=3)(q[0]) * math.pi - 0.0 * extra

        def constraints(self, q):
            return jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]])
"""


def written(source: str) -> tuple:
    """A system and a method of a module with this source, which takes the place of the module before."""
    module = types.ModuleType("written_by_a_user")
    sys.modules[module.__name__] = module
    exec(compile(textwrap.dedent(source), "<written>", "exec"), module.__dict__)
    return current((as_arrays(module.Skate()), as_arrays(da.FrameGradient())))


def name(source: str = PLAIN) -> str | None:
    return lasting_name(written(source))


CHANGES = [
    ("RATE, TABLE, LISTED = 2.0", "RATE, TABLE, LISTED = 2.5"),
    ("np.array([1.0, 2.0", "np.array([1.5, 2.0"),
    ("(2.0, 3.0)}", "(2.0, 3.5)}"),
    ("power=2", "power=4"),
    ("power=3", "power=5"),
    ("x**power", "x**power + 1"),
    ("shifted(0.5)", "shifted(0.6)"),
    ("1.0 * jnp.cos(", "2.0 * jnp.cos("),  # only the derivative
    ("return jnp.sin(x)", "return jnp.tanh(x)"),
    ("0.25 * jnp.sin(x)", "0.5 * jnp.sin(x)"),
    ("factor = 4.0", "factor = 4.5"),
    ("self.inner = 5.0", "self.inner = 5.5"),
    ("self.factor * self.inner", "self.factor + self.inner"),
    ("abs(k) for", "abs(k) + 1 for"),  # a function inside
    ('"theta")', '"phi")'),
    ("slope: float = 0.3", "slope: float = 0.3\n        second: float = 0.1"),
    ("jnp.array([[jnp.sin(q[2])", "jnp.array([[jnp.cos(q[2])"),
    ("math.pi", "math.e"),
]


def test_the_same_source_has_the_same_name_and_changes_have_others():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = name()
    assert first is not None
    assert name() == first
    assert name(PLAIN.replace("slope: float = 0.3", "slope: float = 0.4")) != first  # a default is code
    found = [first]
    for old, new in CHANGES:
        assert PLAIN.count(old) == 1, old
        found.append(name(PLAIN.replace(old, new)))
    assert None not in found
    assert len(set(found)) == len(found)


def test_numbers_of_fields_have_no_part_in_it_and_shapes_have():
    skate = type(written(PLAIN)[0])
    made = [
        lasting_name(current((as_arrays(x), as_arrays(da.FrameGradient()))))
        for x in (skate(), skate(slope=7.0), skate(slope=da.model.systems.jnp.ones(2)))
    ]
    assert made[0] == made[1] != made[2]
    assert lasting_name(current((as_arrays(skate()), as_arrays(da.VariationalDLA())))) != made[0]
    cars = {lasting_name(current(as_arrays(da.zoo.Car(trailers=n)))) for n in (1, 2, 3)}
    assert len(cars) == 3


def test_a_rule_for_a_derivative_that_changes_is_noticed_in_one_process_too():
    ends = []
    for factor in ("1.0", "2.0", "1.0"):
        system, method = written(
            PLAIN.replace("1.0 * jnp.cos", f"{factor} * jnp.cos").replace("0.0 * extra", "extra")
        )
        ends.append(da.simulate(system, method, [0, 0, 0.4], [0, 0, 0.5], h=0.1, steps=3).q[-1, 2])
    assert ends[0] == ends[2] != ends[1]


OUTSIDE = [
    ("np.loadtxt(__file__).sum()", "loadtxt"),
    ("float(open('/dev/null').read() or 1)", "open"),
    ("float(__import__('os').environ.get('RATE', 1))", "environ"),
    ("np.random.default_rng().normal()", "random"),
    ("time.time()", "module"),
    ("rnd.normal()", "module"),
    ("drawn(())", "random"),
    ("from_text(__file__).sum()", "function"),
    ("scipy.io.loadmat('x')['a']", "io"),
    ("getattr(other, 'fac' + 'tor')", "getattr"),
    ("float(eval('RATE'))", "eval"),
    ("float(globals()['RATE'])", "globals"),
    ("len({(1, 2), 'a'} | SET)", "set"),
    ("next(GENERATOR)", "generator"),
    ("float(id(other) % 7)", "id"),
    ("float(input() or 1)", "input"),
    ("np.fromfile('x').sum()", "fromfile"),
    ("scipy_special.gamma(3.0)", ""),
    ("llvmlite.__version__.count('.')", "module"),
]


@pytest.mark.parametrize(("expression", "fault"), OUTSIDE)
def test_what_comes_from_outside_has_no_name(expression, fault):
    start = "    import time, llvmlite, scipy.io, scipy.special as scipy_special\n"
    start += "    from numpy import random as rnd, loadtxt as from_text\n    from numpy.random import normal as drawn\n"
    start += "    SET, GENERATOR = {(1, 2)}, (x for x in [1])\n"
    source = start + PLAIN.replace("0.0 * extra", f"0.0 * {expression}")
    made = written(source)
    if fault:
        assert lasting_name(made) is None
        assert any(fault in x.lower() for x in faults_of(made)), faults_of(made)
    else:
        assert lasting_name(made) is not None


SCRIPT = """
    import sys
    import numpy as np
    import dalembert as da
    from dalembert.model import as_arrays
    from dalembert.numerics import current, lasting_name
    from dalembert.methods import Composition
    methods = [da.FrameGradient(), da.LeapFrog(), da.EDLA(), da.GNI(), da.Reference(), Composition(da.DLA01(), 4)]
    systems = [da.zoo.Car(), da.zoo.Snakeboard(), da.zoo.Suslov(), da.zoo.Rattleback(), da.zoo.TravellingWell()]
    systems.append(da.system(coordinates=("x",), lagrangian=lambda q, v: v @ v * len({"a", "b", "c"} & set(NAMES))))
    for x in [*methods, *systems]:
        print(lasting_name(current(as_arrays(x))))
"""


def test_names_are_the_same_in_every_process():
    def run(seed: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", "NAMES = ['b', 'a']\n" + textwrap.dedent(SCRIPT)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    first = run("1")
    assert "None" not in first
    assert len(set(first)) == len(first) == 12
    assert run("2") == first


def test_the_librarys_own_source_is_a_part_of_the_name(monkeypatch):
    from dalembert.numerics import lasting

    before = lasting._surroundings()
    files = {str(Path(folder, file)) for folder, file, *_ in before[2]}
    assert "methods/frame_gradient.py" in files
    name_before = name()
    monkeypatch.setattr(lasting, "_surroundings", lambda: (*before, "edited"))
    lasting._names.clear()
    assert name() != name_before
    lasting._names.clear()


def test_settings_of_jax_are_a_part_of_the_name():
    first = name()
    with jax.set_mesh(jax.make_mesh((1,), ("x",))):
        inside = name()
    with jax.default_matmul_precision("float32"):
        precise = name()
    assert len({first, inside, precise}) == 3
    assert name() == first


def test_every_system_of_the_zoo_has_a_name():
    for system in da.zoo.__all__:
        made = current((as_arrays(getattr(da.zoo, system)()), as_arrays(da.FrameGradient())))
        assert lasting_name(made), (system, faults_of(made))
