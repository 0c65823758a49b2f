"""Boundary problems of the discrete Lagrange-d'Alembert principle, against the equations of all points at once.

The library shoots; the transcription here solves for every configuration together, or puts the configurations into the
printed equations. r = n - m numbers of the end are prescribed, as many as the starts on the discrete constraint have.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import discrete_mechanics as reference

import dalembert as da

Z = da.zoo
STEPS, H = 50, 0.05
# The principle holds to rounding: momenta of order one, from positions that are known to eps, over steps of 0.05.
BOUND = 1e-12
PARTICLE = Z.NonholonomicParticle(lambda q: (q[0] ** 2 + q[1] ** 2) / 2)


def check(problem, q, h, alpha=0.5):
    """P^T (D1 L_d + D2 L_d) = 0 at all interior points and A_d = 0 over all steps: the largest defects."""
    momenta, constraint = [], []
    for k in range(len(q) - 1):
        point = (1 - alpha) * q[k] + alpha * q[k + 1]
        constraint.append(problem.forms(point) @ (q[k + 1] - q[k]) / h)
        if k:
            ahead = reference.d1(problem, reference.midpoint, q[k], q[k + 1], h)
            behind = reference.d2(problem, reference.midpoint, q[k - 1], q[k], h)
            momenta.append(problem.projectors(q[k])[0].T @ (ahead + behind))
    return np.max(np.abs(momenta)), np.max(np.abs(constraint))


def all_at_once(q0, end, h, steps):
    """The particle in V = (x^2 + y^2)/2: all q_k and lam_k from the printed equations and (x, y) = end, by Newton's
    method from the straight line. The unknowns are q_1 ... q_N without the end's x and y, then lam_1 ... lam_{N-1}."""
    n = 3 * steps - 2

    def path(y):
        q = np.concatenate([q0, y[: n - 1], end, y[n - 1 : n]])
        return q.reshape(steps + 1, 3), y[n:]

    def residual(y):
        q, lam = path(y)
        u, middle = np.diff(q, axis=0) / h, (q[1:] + q[:-1]) / 2
        pull = middle * [1.0, 1.0, 0.0]
        d1, d2 = -u - h / 2 * pull, u - h / 2 * pull
        forms = np.stack([-q[1:-1, 1], 0 * lam, 1 + 0 * lam], axis=1)
        balance = d1[1:] + d2[:-1] - lam[:, None] * forms
        return np.concatenate([balance.ravel(), u[:, 2] - middle[:, 1] * u[:, 0]])

    share = np.linspace(0, 1, steps + 1)[1:, None]
    line = q0 + share * (np.append(end, q0[2]) - q0)
    y = np.concatenate([np.delete(line.ravel(), [n - 1, n]), np.zeros(steps - 1)])
    return path(reference.newton(residual, y))[0]


def test_the_particle_against_all_equations_at_once():
    q0, end = np.array([1.0, 0.6, 0.5]), np.array([0.3, -0.5])
    found = da.solve_boundary(
        PARTICLE, da.VariationalDLA(), q0, [*end, np.nan], h=H, steps=STEPS, end=("x", "y")
    )
    assert found.converged
    assert found.trajectory.q.shape == (STEPS + 1, 3)
    theirs = all_at_once(q0, end, H, STEPS)
    assert np.max(np.abs(found.trajectory.q - theirs)) < BOUND
    assert np.max(np.abs(found.miss)) < BOUND
    assert found.residual < BOUND
    assert np.max(check(reference.particle(harmonic=True), found.trajectory.q, H)) < BOUND
    # The run from the pair that was found is the same, and the line is no solution.
    again = da.simulate(PARTICLE, da.VariationalDLA(), q0, q1=found.q1, h=H, steps=STEPS)
    assert np.max(np.abs(again.q - theirs)) < BOUND
    line = q0 + np.linspace(0, 1, STEPS + 1)[:, None] * (theirs[-1] - q0)
    assert np.max(check(reference.particle(harmonic=True), line, H)) > 1e-3
    # Another guess, and another method for the same end. GNI begins on D by its own start.
    other = da.solve_boundary(
        PARTICLE, da.GNI(), q0, found.trajectory.q[-1], h=H, steps=STEPS, end=("x", "y"), guess=found.v0
    )
    assert other.residual < BOUND
    assert 1e-6 < np.max(np.abs(other.trajectory.q - theirs)) < 1e-2  # methods of order two


@pytest.mark.parametrize(
    ("problem", "system", "end", "change"),
    [
        (reference.disk(), Z.RollingDisk(), ("x1", "x2"), [0.3, 0.2]),
        (reference.snakeboard(), Z.Snakeboard(), ("theta", "psi", "phi"), [0.1, -0.3, 0.2]),
    ],
    ids=["disk", "snakeboard"],
)
def test_the_disk_and_the_snakeboard(problem, system, end, change):
    """From the motion of the transcription's start, whose end is moved by about a fifth of the way."""
    turn = np.array([0, 0, 0, np.pi]) if system.class_name == "RollingDisk" else 0.0
    q0 = problem.q0 + turn
    guess = da.simulate(system, da.VariationalDLA(), q0, problem.v0, h=H, steps=STEPS)
    wanted = guess.q[-1].copy()
    places = [system.coordinates.index(x) for x in end]
    wanted[places] += change
    found = da.solve_boundary(
        system, da.VariationalDLA(), q0, wanted, h=H, steps=STEPS, end=end, guess=problem.v0
    )
    q = found.trajectory.q
    assert np.max(np.abs(q[-1] - wanted)[places]) < BOUND
    assert np.array_equal(q[0], q0)
    assert np.max(check(problem, q - turn, H)) < BOUND
    assert found.residual < BOUND
    assert np.max(np.abs(q - guess.q)) > 0.1


def test_all_of_the_end_by_a_method_that_takes_any_pair():
    """n equations for n unknowns; what leaves D at the start is the parasitic part, and its size depends on the end."""
    problem, steps, h = reference.particle(harmonic=True), 15, 0.1
    reachable = da.solve_boundary(
        PARTICLE, da.GNI(), problem.q0, [0.6, 0.1, 0.0], h=h, steps=steps, end=("x", "y")
    ).trajectory.q[-1]
    amplitudes = []
    for off in (0.0, 1e-3, 1e-2):
        found = da.solve_boundary(
            PARTICLE, da.GNI(), problem.q0, reachable + np.array([0, 0, off]), h=h, steps=steps
        )
        q = found.trajectory.q
        assert np.max(np.abs(q[-1] - reachable - [0, 0, off])) < BOUND
        for k in range(1, steps):  # (4a) and (4b)
            ahead = reference.d1(problem, reference.midpoint, q[k], q[k + 1], h)
            behind = reference.d2(problem, reference.midpoint, q[k - 1], q[k], h)
            p, normal = problem.projectors(q[k])
            assert np.max(np.abs(p.T @ (ahead + behind))) < BOUND
            assert np.max(np.abs(normal.T @ (ahead - behind))) < BOUND
        amplitudes.append(found.trajectory.parasitic_amplitude().max())
    assert amplitudes[0] < 1e-3  # that of the start of order h^3
    assert amplitudes[2] / amplitudes[1] == pytest.approx(10, rel=0.1)


def test_end_points_in_space_and_time():
    """EDLA with r coordinates and the time of the end prescribed: the size of the first step is unknown, too."""
    system = Z.TravellingWell()
    q0, v0 = (np.asarray(x) for x in system.start())
    wanted = da.simulate(system, da.EDLA(), q0, v0, h=0.1, steps=20).q[-1] + 0.05
    found = da.solve_boundary(
        system, da.EDLA(), q0, wanted, h=0.1, steps=20, end=("x", "y"), tN=2.0, guess=v0
    )
    sol = found.trajectory
    # Each step's size is known to eps E/(2 h^2 G), some 1e-14.
    assert abs(sol.t[-1] - 2.0) < BOUND
    assert np.max(np.abs(sol.q[-1] - wanted)[:2]) < BOUND
    assert abs(float(sol.h) - 0.1) > 1e-3
    assert found.residual < BOUND


def test_an_element_of_a_group():
    system, method, steps = Z.Suslov(), da.LieGNI("cayley"), 15
    g0, xi0 = (np.asarray(x) for x in system.start())
    there = da.simulate(system, method, g0, xi0, h=0.1, steps=steps).q[-1]
    wanted = np.asarray(system.group.multiply(there, system.group.exp(jnp.array([0.02, 0.01, -0.02]))))
    found = da.solve_boundary(system, method, g0, wanted, h=0.1, steps=steps, guess=xi0)
    assert np.max(np.abs(found.trajectory.q[-1] - wanted)) < BOUND
    assert found.residual < BOUND
    rule = da.VariationalDLA(da.discrete.Retraction("cayley"))
    with pytest.raises(ValueError, match=r"2 components.*use LieGNI\(\)"):
        da.solve_boundary(system, rule, g0, wanted, h=0.1, steps=steps)
    with pytest.raises(ValueError, match="leave `end` out"):
        da.solve_boundary(system, method, g0, wanted, h=0.1, steps=steps, end=("g11",))
    with pytest.raises(ValueError, match="not an element"):
        da.solve_boundary(system, method, g0, 2 * wanted, h=0.1, steps=steps)


OSCILLATOR = da.system(
    coordinates=("x",),
    metric=lambda q: jnp.eye(1),
    potential=lambda q: q[0] ** 2 / 2,
    constraints=lambda q: jnp.zeros((0, 1)),
)


def test_an_end_out_of_reach_is_said_to_be():
    """The midpoint rule turns the phase plane by 2 atan(h/2) per step: after half a turn, q_N = -q_0 for all v_0."""
    steps = 10
    h = 2 * np.tan(np.pi / (2 * steps))
    method = da.VariationalDLA()
    with pytest.raises(da.BoundaryError, match="does not determine the start") as caught:
        da.solve_boundary(OSCILLATOR, method, [1.0], [0.5], h=h, steps=steps)
    nearest = caught.value.solution
    assert not nearest.converged
    assert nearest.miss[0] == pytest.approx(-1.5, abs=1e-10)
    assert nearest.condition > 1e9  # the response is zero to rounding
    found = da.solve_boundary(OSCILLATOR, method, [1.0], [0.5], h=h, steps=steps, throw=False)
    assert not found.converged
    assert "does not determine" in str(found)
    # A quarter of a turn reaches every end: q_N = v_0.
    quarter = da.solve_boundary(
        OSCILLATOR, method, [1.0], [0.5], h=2 * np.tan(np.pi / (4 * steps)), steps=steps
    )
    assert quarter.v0[0] == pytest.approx(0.5, abs=BOUND)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"end": None}, r"3 numbers.*2 components.*name 2 of \(x, y, z\).*GNI\(\)"),
        ({"end": ("x",)}, "1 numbers of the end are prescribed"),
        ({"end": "xy"}, "names of coordinates"),
        ({"end": ("x", "w")}, "each once"),
        ({"end": ("x", "x")}, "each once"),
        ({"steps": 1}, "at least 2 steps"),
        ({"h": -0.1}, "h must be positive"),
        ({"tN": 2.0}, "whose steps differ in size"),
        ({"guess": [1.0]}, "guess must be a velocity"),
        ({"qN": [np.nan, 0.0, 0.0]}, "must be finite"),
        ({"qN": [0.0, 0.0]}, r"qN must have shape \(3,\)"),
        ({"method": "gni"}, "expected a method"),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else "",
)
def test_what_is_refused(change, words):
    given = {"method": da.VariationalDLA(), "q0": [1.0, 0.6, 0.5], "qN": [0.3, -0.5, 0.0]}
    given |= {"h": H, "steps": STEPS, "end": ("x", "y"), **change}
    with pytest.raises(ValueError, match=words):
        da.solve_boundary(PARTICLE, given.pop("method"), given.pop("q0"), given.pop("qN"), **given)


def test_inside_jit_it_is_refused():
    def end(x):
        return da.solve_boundary(OSCILLATOR, da.GNI(), [1.0], x, h=0.1, steps=5).v0

    with pytest.raises(ValueError, match="works on numbers"):
        jax.jit(end)(jnp.ones(1))
