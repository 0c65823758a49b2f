"""Bad input to discrete Lagrangians, geometric integrators and systems on Lie groups: refused before anything runs,
saying what was expected, what came and what to do. What fails in a run is reported, and what was computed is kept."""

import re
import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.diagnostics.discrete import phase_determinant, space_momentum_change
from dalembert.discrete import (
    AlphaRule,
    CustomConstraint,
    CustomLagrangian,
    Gauss,
    Midpoint,
    PointConstraint,
    Retraction,
    Trapezoidal,
)
from dalembert.methods.cli_names import method_from_text, remedies
from dalembert.model import check_start, lower, observed

PARTICLE, SUSLOV = da.zoo.NonholonomicParticle(), da.zoo.Suslov()
ONE = np.eye(3).reshape(9)


def run(system=PARTICLE, method=None, q0=None, v0=None, h=0.1, steps=3, **options):
    if q0 is None:
        q0, v0 = system.start()
    return da.simulate(system, method or da.GNI(), q0, v0, h=h, steps=steps, **options)


def on_so3(system, q0=ONE, v0=(0.5, 1.0, 0.0)):
    return run(system, da.LieGNI(), q0, v0)


def refused(message, call):
    with pytest.raises(ValueError, match=message):
        call()


LAGRANGIAN = r"needs a discrete Lagrangian such as Midpoint\(\).*function of \(system, q0, q1, h\); got"
CONSTRAINT = r"needs a discrete constraint such as PointConstraint\(0.5\).*returns m numbers; got"


@pytest.mark.parametrize("method", [da.GNI, da.VariationalDLA])
@pytest.mark.parametrize("given", ["midpoint", 3, None, Midpoint, PointConstraint()])
def test_a_discrete_lagrangian_is_asked_for(method, given):
    refused(f"{method.__name__} {LAGRANGIAN}", lambda: method(given))


@pytest.mark.parametrize("given", ["left", 0.5, None, PointConstraint, Midpoint()])
def test_a_discrete_constraint_is_asked_for(given):
    refused(f"VariationalDLA {CONSTRAINT}", lambda: da.VariationalDLA(discrete_constraint=given))


STARTS = "no start 'late'; choose one of: half-kick, momentum, exact"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: da.GNI(start="late"), f"GNI has {STARTS}"),
        (lambda: da.LieGNI(start="late"), f"LieGNI has {STARTS}"),
        (lambda: AlphaRule(-0.1), "AlphaRule needs alpha between 0 and 1, got -0.1"),
        (lambda: AlphaRule("half"), "AlphaRule needs alpha between 0 and 1, got 'half'"),
        (lambda: AlphaRule(float("nan")), "AlphaRule needs alpha between 0 and 1, got nan"),
        (lambda: AlphaRule(True), "AlphaRule needs alpha between 0 and 1, got True"),
        (lambda: PointConstraint(1.5), "PointConstraint needs alpha between 0 and 1, got 1.5"),
        (lambda: PointConstraint(None), "PointConstraint needs alpha between 0 and 1, got None"),
        (lambda: PointConstraint(True), "PointConstraint needs alpha between 0 and 1, got True"),
        (lambda: Gauss(0), "Gauss needs 1 to 6 stages, got 0"),
        (lambda: Gauss(7), "Gauss needs 1 to 6 stages, got 7"),
        (lambda: Gauss(2.5), "Gauss needs 1 to 6 stages, got 2.5"),
        (lambda: Gauss(True), "Gauss needs 1 to 6 stages, got True"),
        (lambda: CustomLagrangian(3), r"CustomLagrangian needs a function of \(system, q0, q1, h\), got 3"),
        (
            lambda: CustomConstraint("left"),
            r"CustomConstraint needs a function of \(system, q0, q1, h\), got 'left'",
        ),
        (lambda: CustomLagrangian(free, 0), "order.*got 0"),
        (lambda: CustomLagrangian(free, "2"), "order.*got '2'"),
        (lambda: CustomLagrangian(free, 2, "yes"), "is_symmetric.*got 'yes'"),
        (lambda: CustomConstraint(left, "yes"), "is_symmetric.*got 'yes'"),
        (lambda: da.Composition(da.GNI()), "GNI must not be composed.*parasitic.*compose FrameGradient"),
        (lambda: da.Composition(da.LieGNI()), "LieGNI must not be composed.*parasitic"),
        (lambda: da.zoo.RoundBody("SO3"), r"lives on one of: SO\(3\), S\^3; got 'SO3'"),
        (lambda: da.zoo.RoundBody(distribution="none"), "no distribution 'none'; choose one of: mixed"),
        (lambda: da.groups.Rn(0), "dimension of at least 1, got 0"),
        (lambda: da.zoo.NonholonomicParticle(3), "potential must be a function of q, got 3"),
    ],
)
def test_making_things(make, message):
    refused(message, make)


@pytest.mark.parametrize("method", [da.GNI, da.LieGNI])
@pytest.mark.parametrize("n", [0, -1, 1.5, 20.0, True, "20", float("nan")])
def test_restarts_are_counted(method, n):
    message = f"{method.__name__}: restart_every must be None or a whole number of at least 1, got {n!r}"
    refused(message, lambda: method(restart_every=n))


def test_numpy_counts_are_whole_numbers():
    """As `steps` takes them; and without a word about static arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert da.GNI(restart_every=np.int64(20)).cli_name == "gni:restart=20"


@pytest.mark.parametrize(
    ("system", "given", "choices"),
    [
        (SUSLOV, "log", r"SO\(3\) has no retraction 'log'; choose one of: exp, cayley$"),
        (SUSLOV, "mid", r"SO\(3\) has no retraction 'mid'; choose one of: exp, cayley$"),
        (da.zoo.RoundBody("S^3"), "mid", r"S\^3 has no retraction 'mid'; choose one of: exp, cayley$"),
        (da.zoo.GroupSleigh(), "log", r"SE\(2\) has no retraction 'log'; choose one of: exp, cayley, mid$"),
    ],
)
def test_each_group_names_its_retractions(system, given, choices):
    refused(choices, lambda: run(system, da.LieGNI(given)))


@pytest.mark.parametrize("method", [da.GNI(), da.VariationalDLA(), da.LeapFrog(), da.DLA()])
def test_methods_in_coordinates_send_groups_away(method):
    name = type(method).__name__
    same = r"VariationalDLA\(Retraction\(\"exp\"\)\), " if name == "VariationalDLA" else ""
    message = rf"{name} works in coordinates, but Suslov lives on the group SO.*Use {same}.*LieGNI\(\).*Chart\(Suslov"
    refused(message, lambda: run(SUSLOV, method))


def test_the_method_on_groups_sends_coordinates_away():
    message = r"LieGNI is defined on Lie groups, but NonholonomicParticle.*Use GNI\(\).*GroupSystem"
    refused(message, lambda: run(PARTICLE, da.LieGNI()))


class Damped(da.zoo.NonholonomicParticle):
    def forces(self, q, v):
        return -v


class DampedBody(da.zoo.Suslov):
    def forces(self, g, v):
        return -v


class Sphere(da.System):
    """A mass matrix that depends on q."""

    coordinates = ("a", "b")

    def metric(self, q):
        return jnp.diag(jnp.stack([jnp.ones(()), 1 + 0.5 * jnp.sin(q[0]) ** 2]))

    def starts(self):
        return {"usual": ([0.3, 0.1], [0.5, 0.2])}


class DampedSphere(Sphere):
    def forces(self, q, v):
        return -v


class Charged(da.System):
    """A Lagrangian with a term linear in v."""

    coordinates = ("x", "y")

    def lagrangian(self, q, v):
        return 0.5 * v @ v + q[0] * v[1]

    def starts(self):
        return {"usual": ([0.3, 0.1], [0.5, 0.2])}


class ChargedWithForces(Charged):
    def forces(self, q, v):
        return -v


class DampedWell(da.zoo.RheonomicParticle):
    def forces(self, t, q, v):
        return -v


METHODS = {
    x.cli_name: x
    for x in (
        da.DLA(), da.DLA01(), da.LeapFrog(), da.DiscreteGradient(), da.FrameGradient(), da.GNI(), da.LieGNI(),
        da.VariationalDLA(), da.VariationalDLA(Retraction("exp")), da.EDLA(), da.Composition(da.DLA01()),
        da.Reference(),
    )
}  # fmt: skip
KINDS = [
    SUSLOV, DampedBody(), Damped(), Sphere(), DampedSphere(), Charged(), ChargedWithForces(),
    da.zoo.RheonomicParticle(), DampedWell(), da.zoo.BallOnTurntable(),
]  # fmt: skip


@pytest.mark.parametrize("system", KINDS, ids=lambda x: type(x).__name__)
def test_a_remedy_takes_the_system(system):
    """Every method that a refusal names is made from its words, and asked about the same system."""
    m = observed(lower(system), check_start(system, *system.start())[1])

    def said(method):
        try:
            method.check(m)
        except ValueError as error:
            return str(error)
        return None

    told = {method: said(method) for method in METHODS.values()}
    refusals = [x for x in told.values() if x is not None]
    assert refusals
    assert all((x is None) == method.takes(m) for method, x in told.items())
    for words in refusals:
        found = re.findall(r"\w+\((?:Retraction\(\"exp\"\))?\)", words.partition(" Use ")[2])
        # What is not a method's name is a word about coordinates.
        found = [x for x in found if x.partition("(")[0] not in (type(system).__name__, "Chart")]
        assert found, words
        for name in found:
            remedies()[name].check(m)


SOMETHING = object()
NOTHING_OF_THE_KIND = (
    "a", None, (1, 2), [1, 2], {}, -1, float("nan"), float("inf"), 1j, np.array([0.2, 1.4]), np.array("x"), SOMETHING,
    da.DLA, jnp.array([2.0, 3.0]),
)  # fmt: skip
ARGUMENTS = {
    "DLA needs alpha between 0 and 1, got": (da.DLA, (True,)),
    "LeapFrog has no start .*; choose one of: half-kick, momentum": (da.LeapFrog, (3, True)),
    "DiscreteGradient has no gradient .*; choose one of: gonzalez": (da.DiscreteGradient, (3, True)),
    "FrameGradient has no gradient .*; choose one of: gonzalez": (da.FrameGradient, (3, True)),
    r"Composition needs a method such as FrameGradient\(\), got": (da.Composition, (3, True)),
    "Composition has orders 4, 6, 8, 10; got": (
        lambda x: da.Composition(da.FrameGradient(), x),
        (3, True, 4.0),
    ),
    "Composition: force must be True or False, got": (
        lambda x: da.Composition(da.FrameGradient(), 4, x),
        (1,),
    ),
    f"GNI {LAGRANGIAN}": (da.GNI, (3, True)),
    f"GNI has {STARTS[:9]}.*; choose one of: half-kick, momentum, exact": (
        lambda x: da.GNI(start=x),
        (3, True),
    ),
    "GNI: restart_every must be None or a whole number": (lambda x: da.GNI(restart_every=x), (True,)),
    "LieGNI needs a retraction by its name, one of: exp, cayley, mid": (da.LieGNI, (3, True, Midpoint())),
    f"VariationalDLA {LAGRANGIAN}": (da.VariationalDLA, (3, True)),
    f"VariationalDLA {CONSTRAINT}": (lambda x: da.VariationalDLA(discrete_constraint=x), (3, True)),
    f"EDLA {LAGRANGIAN}": (da.EDLA, (3, 5, True)),
    f"EDLA {CONSTRAINT}": (lambda x: da.EDLA(Midpoint(), x), (3, True)),
    "EDLA: continuation must be True or False, got": (lambda x: da.EDLA(continuation=x), (0,)),
    "EDLA: pin must be True or False, got": (lambda x: da.EDLA(pin=x), (0,)),
    "Reference needs positive tolerances, rtol of at most 1, got rtol": (
        lambda x: da.Reference(rtol=x),
        (True, 0, 3),
    ),
    "Reference needs positive tolerances, .* atol": (lambda x: da.Reference(atol=x), (True, 0)),
    "AlphaRule needs alpha between 0 and 1, got": (AlphaRule, (True,)),
    "PointConstraint needs alpha between 0 and 1, got": (PointConstraint, (True,)),
    "Gauss needs 1 to 6 stages, got": (Gauss, (True, 2.0)),
    "Retraction has no map .*; choose one of: exp, cayley, mid": (Retraction, (3, True)),
    "CustomLagrangian needs a function": (CustomLagrangian, (3, True)),
    "CustomConstraint needs a function": (CustomConstraint, (3, True)),
    "CustomLagrangian: the order must be a whole number of at least 1": (
        lambda x: CustomLagrangian(free, x),
        (True,),
    ),
    "CustomLagrangian: is_symmetric must be True or False": (lambda x: CustomLagrangian(free, 1, x), (0,)),
}


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
@pytest.mark.parametrize("message", ARGUMENTS)
def test_arguments_of_the_wrong_kind(message):
    """One sentence that says what was expected and what came, never a traceback from inside."""
    make, more = ARGUMENTS[message]
    for given in (*NOTHING_OF_THE_KIND, *more):
        if given is None and "restart_every" in message:
            continue
        if isinstance(given, str) and ("LieGNI" in message or "Retraction" in message):
            continue  # which names there are depends on the group
        with pytest.raises(ValueError, match=f"(?s){message}"):
            make(given)


def test_numbers_of_numpy_are_numbers():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert AlphaRule(np.float64(0.3)) == AlphaRule(0.3)
        assert Gauss(np.int64(2)) == Gauss(2)
        assert da.Composition(da.DLA01(), np.int64(4)).order == 4
        assert da.Reference(np.float64(1e-9), 1e-9).cli_name == "reference:1e-09,1e-09"


def test_a_retraction_may_be_given_as_such():
    assert da.LieGNI(Retraction("cayley")) == da.LieGNI("cayley")


@pytest.mark.parametrize("method", [da.GNI(), da.VariationalDLA()])
def test_forces_are_not_taken(method):
    message = r"without non-conservative forces, but Damped gives forces\(q, v\). Use FrameGradient\(\) or Reference"
    refused(message, lambda: run(Damped(), method))


def test_forces_on_groups_are_not_taken():
    with pytest.raises(
        ValueError, match=r"LieGNI.*DampedBody gives forces.*Use FrameGradient\(\) or Reference\(\)"
    ):
        on_so3(DampedBody())


@pytest.mark.parametrize("method", [da.LeapFrog(), da.DLA01()])
def test_lagrangians_that_are_not_mechanical(method):
    for lagrangian in (lambda q, v: 0.5 * v @ v + q[0] * v[1], lambda q, v: -jnp.sqrt(1 - v @ v)):
        system = da.system(coordinates=("x", "y"), lagrangian=lagrangian)
        message = (
            r"kinetic energy, quadratic in v, minus a potential.*Use VariationalDLA\(\), GNI\(\), EDLA\(\)"
        )
        refused(message, lambda system=system: run(system, method, [0.0, 0.0], [0.1, 0.0]))


@pytest.mark.parametrize(
    ("q0", "v0", "message"),
    [
        (
            2 * ONE,
            [0.5, 1, 0],
            r"Suslov: q0 is not an element of SO\(3\): it is off by 3.*R11, R12.*as in \[1.0, 0.0",
        ),
        (ONE * np.repeat([1, 1, -1], 3), [0.5, 1, 0], r"q0 is not an element of SO\(3\): it is off by 2"),
        (np.eye(3), [0.5, 1, 0], r"q0 must have shape \(9,\).*R11.*got \(3, 3\)"),
        (np.full(9, np.nan), [0.5, 1, 0], "q0 must be finite"),
        (ONE, np.zeros(9), r"v0 must have shape \(3,\), one value for each of \(w1, w2, w3\); got \(9,\)"),
        (
            ONE,
            [0.5, 1, 0.3],
            r"Suslov: the start velocity violates the constraint.*\[0.3\], expected zero.*nearest allowed.*\[0.59",
        ),
    ],
)
def test_starts_on_groups(q0, v0, message):
    refused(message, lambda: on_so3(SUSLOV, q0, v0))


def test_quaternions_have_unit_length():
    body = da.zoo.RoundBody("S^3")
    refused(r"q0 is not an element of S\^3: it is off by 1.*qw, qx", lambda: on_so3(body, [1, 1, 0, 0]))


class Body(da.GroupSystem):
    """What is wrong with it is given as its functions."""

    group = da.groups.SO3()
    rows: tuple = eqx.field(default=((0.0, 0.0, 1.0),), static=True)

    def inertia(self):
        return jnp.eye(3)

    def constraints(self, g):
        return jnp.array(self.rows)


class WithoutInertia(da.GroupSystem):
    group = da.groups.SO3()


class Weightless(Body):
    def inertia(self):
        return jnp.ones(3)


class Lopsided(Body):
    def inertia(self):
        return jnp.eye(3).at[0, 1].set(0.5)


class ByLagrangian(da.GroupSystem):
    group = da.groups.SO3()

    def lagrangian(self, q, v):
        return 0.5 * v @ v


class Groupless(da.GroupSystem):
    def inertia(self):
        return jnp.eye(3)


class OfAClass(Groupless):
    group = da.groups.SO3  # not made


@pytest.mark.parametrize(
    ("system", "message"),
    [
        (Body(((0.0, 0.0, 0.0),)), r"Body: the one-forms are linearly dependent.*R11=1.*Remove"),
        (Body(((0.0, 0.0, 1.0), (0.0, 0.0, 0.0))), "Body: the one-forms are linearly dependent"),
        (Body((0.0, 0.0, 1.0)), r"Body.constraints must return shape \(m, 3\).*got shape \(3,\).*row"),
        (Body(((0.0,) * 9,)), r"Body.constraints must return shape \(m, 3\), got shape \(1, 9\)"),
        (
            da.zoo.Suslov(i33=-1.0),
            "Suslov: the mass matrix must be positive definite.*smallest eigenvalue.*positive",
        ),
        (da.zoo.Suslov(i13=5.0), "Suslov: the mass matrix must be positive definite"),
        (da.zoo.RoundBody(moment=0.0), "RoundBody: the mass matrix must be positive definite"),
        (WithoutInertia(), r"WithoutInertia gives neither inertia\(\) nor metric\(g\)"),
        (Lopsided(), "Lopsided: the mass matrix is not symmetric"),
        (Weightless(), r"Weightless.inertia.*\(3, 3\), got shape \(3,\)"),
        (ByLagrangian(), r"ByLagrangian.*inertia\(\)"),
        (Groupless(), r"Groupless.*group.*SO3\(\)"),
        (OfAClass(), r"OfAClass.*group.*SO3\(\)"),
    ],
)
def test_bodies(system, message):
    refused(message, lambda: on_so3(system))


def symmetric(moves, named=None):
    """A free particle whose symmetries are given, rightly or wrongly."""

    class Symmetric(da.System):
        coordinates = ("x", "y", "z")

        def metric(self, q):
            return jnp.eye(3)

        def constraints(self, q):
            return jnp.array([[-q[1], 0.0, 1.0]])

        def generators(self, q):
            return jnp.asarray(moves)

        def sections(self):
            return {} if named is None else named

    return Symmetric()


def moving(system):
    return run(system, da.GNI(), [1.0, 0.6, 0.5], [1.0, 0.5, 0.6])


EYE = np.eye(3)


@pytest.mark.parametrize(
    ("system", "message"),
    [
        (
            symmetric(np.eye(2)),
            r"Symmetric.generators must return shape \(3, k\), one column.*got shape \(2, 2\)",
        ),
        (symmetric(np.ones(3)), r"Symmetric.generators must return shape \(3, k\).*got shape \(3,\)"),
        (symmetric(EYE, {"up": lambda q: jnp.ones(2)}), r"section.*up.*\(3,\).*got shape \(2,\)"),
        (symmetric(EYE, {"up": lambda q: jnp.ones((3, 1))}), r"section.*up.*\(3,\).*got shape \(3, 1\)"),
        (symmetric(EYE, {"up": lambda q: [1.0, 0.0, 0.0]}), "section.*up.*array.*got a list"),
        (symmetric(EYE, {"up": EYE[1]}), "section.*up.*function"),
        (symmetric(EYE, [lambda q: jnp.ones(3)]), "sections.*names.*got"),
        (symmetric(np.zeros((3, 0)), {"up": lambda q: EYE[1]}), r"section.*up.*\(0,\).*got shape \(3,\)"),
        (symmetric(EYE, {"up": lambda q: jnp.array([1.0, 0.0, 0.0])}), "section.*up.*constraint"),
    ],
)
def test_symmetries(system, message):
    refused(message, lambda: moving(system))


def test_a_right_section_is_taken():
    along = symmetric(EYE, {"along": lambda q: jnp.stack([jnp.ones(()), jnp.zeros(()), q[1]])})
    assert moving(along).status is da.Status.OK


def free(system, q0, q1, h):
    return 0.5 * jnp.sum((q1 - q0) ** 2) / h


def left(system, q0, q1, h):
    return system.constraints(q0) @ (q1 - q0) / h


@pytest.mark.parametrize("method", [da.GNI, da.VariationalDLA])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda s, q0, q1, h: q1 - q0, r"discrete Lagrangian.*number.*got shape \(3,\)"),
        (lambda s, q0, q1, h: free(s, q0, q1, h)[None], r"discrete Lagrangian.*number.*got shape \(1,\)"),
        (lambda s, q0, q1, h: None, "discrete Lagrangian.*number.*got.*None"),
        (lambda s, q0, q1, h: (1.0, 2.0), "discrete Lagrangian.*number.*got a tuple"),
        (lambda s, q0, q1, h: jnp.argmax(q1), "discrete Lagrangian.*real.*got int64"),
        (lambda s, q0, q1, h: 1j * free(s, q0, q1, h), "discrete Lagrangian.*real.*got complex128"),
    ],
)
def test_own_lagrangians(method, function, message):
    refused(message, lambda: run(PARTICLE, method(function)))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda s, q0, q1, h: left(s, q0, q1, h)[0], r"discrete constraint.*shape \(1,\).*got shape \(\)"),
        (lambda s, q0, q1, h: (q1 - q0)[:2], r"discrete constraint.*shape \(1,\).*got shape \(2,\)"),
        (lambda s, q0, q1, h: (q1 - q0)[None], r"discrete constraint.*shape \(1,\).*got shape \(1, 3\)"),
        (lambda s, q0, q1, h: jnp.zeros(0), r"discrete constraint.*shape \(1,\).*got shape \(0,\)"),
        (lambda s, q0, q1, h: None, "discrete constraint.*got.*None"),
    ],
)
def test_own_constraints(function, message):
    refused(message, lambda: run(PARTICLE, da.VariationalDLA(discrete_constraint=function)))


@pytest.mark.parametrize(
    ("method", "label"),
    [
        (da.GNI(lambda s, q0, q1, h: q0 @ q1[:2]), "discrete Lagrangian"),
        (da.GNI(lambda q0, q1, h: 0.0), "discrete Lagrangian"),
        (da.VariationalDLA(discrete_constraint=lambda s, q0, q1, h: q0 @ q1[:2]), "discrete constraint"),
    ],
)
def test_a_mistake_in_the_users_function_says_where(method, label):
    with pytest.raises(TypeError) as caught:
        run(PARTICLE, method)
    assert any(label in note for note in getattr(caught.value, "__notes__", []))


def test_own_functions_that_are_right_are_taken():
    ours = run(PARTICLE, da.VariationalDLA(free, left), steps=20)
    usual = run(PARTICLE, da.VariationalDLA(Midpoint(), PointConstraint(0.0)), steps=20)
    # Own functions see positions only: eps |q|/h a step.
    np.testing.assert_allclose(ours.q, usual.q, atol=1e-12)


GNI_OPTIONS = "choose from: midpoint, trapezoidal, alpha, gauss, half-kick, momentum, exact, restart"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gnii", "no method 'gnii'; choose one of: .*gni, lie-gni, dla-variational"),
        ("gni:verlet", f"gni has no option 'verlet'; {GNI_OPTIONS}"),
        ("gni:left", f"gni has no option 'left'; {GNI_OPTIONS}"),
        ("gni:alpha=2", "AlphaRule needs alpha between 0 and 1, got 2.0"),
        ("gni:gauss=9", "Gauss needs 1 to 6 stages, got 9"),
        ("gni:restart=0", "restart_every must be None or a whole number of at least 1, got 0"),
        ("gni@4", "GNI must not be composed.*parasitic"),
        (
            "lie-gni:log",
            "lie-gni has no option 'log'; choose from: exp, cayley, mid, map, half-kick, momentum, exact, restart",
        ),
        ("lie-gni:gauss=2", "lie-gni has no option 'gauss=2'; choose from: exp"),
        (
            "dla-variational:right",
            "no option 'right'; choose from: midpoint, trapezoidal, alpha, gauss, exp, cayley, mid, map, left, point",
        ),
        ("dla-variational:restart=20", "dla-variational has no option 'restart=20'; choose from"),
        ("dla-variational:point=2", "PointConstraint needs alpha between 0 and 1, got 2.0"),
        ("gni:alpha", "alpha=0.*got"),
        ("gni:alpha=x", "alpha=0.*got 'x'"),
        ("gni:gauss=1.5", "whole number|1 to 6 stages"),
        ("gni:gauss=nan", "whole number|1 to 6 stages"),
        ("gni:restart", "restart=20.*got|whole number"),
        ("gni:restart=1.5", "whole number"),
        ("gni:restart=nan", "whole number"),
        ("gni:restart=1e400", "whole number"),
        ("gni:midpoint=3", "midpoint.*3"),
        ("lie-gni:exp=3", "exp.*3"),
        ("dla-variational:left=3", "left.*3"),
        ("gni:midpoint,trapezoidal", "midpoint.*trapezoidal|twice"),
        ("gni:momentum,exact", "momentum.*exact|twice"),
    ],
)
def test_spellings_that_are_wrong(text, message):
    refused(message, lambda: method_from_text(text))


@pytest.mark.parametrize(
    "method",
    [
        da.GNI(),
        da.GNI(Trapezoidal()),
        da.GNI(AlphaRule(0.3)),
        da.GNI(AlphaRule(1 / 3)),
        da.GNI(Gauss(3), start="exact", restart_every=7),
        da.GNI(start="momentum"),
        da.LieGNI(),
        da.LieGNI("cayley", restart_every=20),
        da.LieGNI("mid", start="exact"),
        da.VariationalDLA(),
        da.VariationalDLA(Trapezoidal(), PointConstraint(0.0)),
        da.VariationalDLA(Gauss(2), PointConstraint(0.25)),
        da.VariationalDLA(AlphaRule(0.0), PointConstraint(1 / 3)),
    ],
)
def test_a_method_is_what_its_spelling_makes(method):
    assert method_from_text(method.cli_name) == method


# Steps far beyond the time scales of the motion (pendulum, a body that turns by ten radians a step).
TOO_LARGE = [
    (da.zoo.PendulumCVT(eps=0.5), da.GNI(), 2.0),
    (da.zoo.PendulumCVT(eps=0.5), da.VariationalDLA(), 2.0),
    (da.zoo.ChaplyginSleigh(), da.VariationalDLA(), 2.0),
    (SUSLOV, da.LieGNI(), 10.0),
    (da.zoo.GroupSleigh(), da.LieGNI(), 10.0),
]


@pytest.mark.parametrize(("system", "method", "h"), TOO_LARGE)
@pytest.mark.filterwarnings("ignore::dalembert.MotionWarning")
def test_a_step_that_is_not_solved_is_reported(system, method, h):
    words = r"step \d+ from t = .*equations of a step were not solved.*residual .*, h = .*Last good state.*smaller h"
    with pytest.raises(da.SimulationError, match=words) as caught:
        run(system, method, h=h, steps=50)
    error, kept = caught.value, caught.value.trajectory
    assert error.status is da.Status.NOT_SOLVED
    assert error.step == int(kept.steps) + 1
    assert error.time == pytest.approx(error.step * h)  # a product of a few digits
    # A residual is relative to the velocity; below a thousandth the iteration would soon have ended.
    assert error.residual > 1e-3
    assert len(kept.t) == error.step, "nothing is lost"
    again = run(system, method, h=h, steps=error.step - 1)
    np.testing.assert_array_equal(again.q, kept.q)
    quiet = run(system, method, h=h, steps=50, throw=False)
    assert quiet.status is da.Status.NOT_SOLVED
    np.testing.assert_array_equal(quiet.q, kept.q)


@pytest.mark.filterwarnings("ignore::dalembert.MotionWarning")
def test_a_path_that_is_not_found_ends_the_run():
    """The inner iteration of Gauss: its action is not a number then, and the remedy names it and a smaller step."""
    sol = run(da.zoo.PendulumCVT(eps=0.5), da.GNI(Gauss(3)), h=10.0, steps=5, throw=False)
    assert sol.status is da.Status.NOT_FINITE
    assert "discrete Lagrangian" in sol.message
    assert "smaller h" in sol.message


def test_a_body_on_a_group_has_no_driver_in_coordinates():
    refused(r"Suslov is not a coupled system.*SO\(3\)", lambda: da.CoupledSystem.of(da.zoo.Suslov()))


def told(system, method, steps, h, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(system, method, h=h, steps=steps, **options)
    return [str(w.message) for w in caught if w.category is da.MotionWarning]


SLEIGH, GROUP_SLEIGH = da.zoo.ChaplyginSleigh(), da.zoo.GroupSleigh()
GROWN = "parasitic mode of {} has grown from .* to .*motion is wrong.*restart_every=20"


@pytest.mark.parametrize(
    ("system", "method", "save_every"),
    [
        (SLEIGH, da.GNI(), 1),
        (SLEIGH, da.GNI(), 50),
        (GROUP_SLEIGH, da.LieGNI(), 1),
        (GROUP_SLEIGH, da.LieGNI("mid"), 1),
    ],
)
def test_the_parasitic_mode_is_told_of_where_it_grows(system, method, save_every):
    words = told(system, method, 400, 0.2, save_every=save_every)
    assert len(words) == 1
    with pytest.warns(da.MotionWarning, match=GROWN.format(method.cli_name)):
        run(system, method, h=0.2, steps=400)
    assert "FrameGradient()" in words[0], "a remedy that takes the system"


@pytest.mark.parametrize(
    ("system", "method", "steps", "h"),
    [
        (PARTICLE, da.GNI(), 2000, 0.1),
        (PARTICLE, da.GNI(start="momentum"), 2000, 0.1),
        (da.zoo.Snakeboard(), da.GNI(), 2000, 0.1),
        (SLEIGH, da.GNI(restart_every=20), 400, 0.2),
        (SLEIGH, da.GNI(), 100, 0.2),  # the figure's length; it has not grown yet
        (SLEIGH, da.VariationalDLA(), 400, 0.2),
        (GROUP_SLEIGH, da.LieGNI(restart_every=20), 400, 0.2),
        (SUSLOV, da.LieGNI(restart_every=20), 1000, 0.1),
    ],
)
def test_and_not_elsewhere(system, method, steps, h):
    assert told(system, method, steps, h) == []


def test_laws_are_asked_of_methods_that_have_them():
    sol = run(PARTICLE, da.GNI())
    message = "momentum in space is defined on Lie groups; NonholonomicParticle is given in coordinates"
    refused(message, lambda: space_momentum_change(PARTICLE, da.GNI(), 0.1, sol.q, sol.v_full))
    for method in (da.VariationalDLA(), da.FrameGradient()):
        name = type(method).__name__
        refused(name, lambda method=method: phase_determinant(PARTICLE, method, 0.1, sol.q, sol.v_full))
