"""EDLA on Lie groups: steps that keep the energy, against equations that another module writes down."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from equations import group_mechanics as plain

import dalembert as da
from dalembert.diagnostics import variable_step_laws
from dalembert.discrete import LeftInvariant, Retraction

SPREAD, WEIGHTS = plain.SPREAD, plain.WEIGHTS


class Heavy(da.zoo.Suslov):
    """A heavy body whose one-form is neither left- nor right-invariant."""

    def potential(self, g):
        return 0.4 * g[0] - 0.3 * g[5] + 0.2 * g[8]

    def constraints(self, g):
        return jnp.stack([0.3 * g[2], 0.2 + 0.1 * g[3], 1.0 + 0.2 * g[7]])[None]

    def sections(self):
        return {}


def heavy_start():
    """A rotation, and a velocity that the one-form allows there."""
    body = Heavy()
    g = np.asarray(body.group.exp(jnp.array([0.3, -0.4, 0.5])))
    a = np.asarray(body.constraints(g))[0]
    v = np.array([1.0, 0.7, 0.0])
    return g, v - a * (a @ v) / (a @ a)


class Problem:
    """The functions of a system in NumPy, with elements as the transcription writes them."""

    def __init__(self, group, tau, inertia, form, potential=lambda g: 0 * g[..., 0, 0], element=lambda q: q):
        self.group, self.tau, self.inertia, self.form = group, tau, inertia, form
        self.potential, self.element = potential, element


def heavy_form(g):
    return np.array([[0.3 * g[0, 2], 0.2 + 0.1 * g[1, 0], 1.0 + 0.2 * g[2, 1]]])


def heavy_potential(g):
    return 0.4 * g[..., 0, 0] - 0.3 * g[..., 1, 2] + 0.2 * g[..., 2, 2]


SLEIGH = da.zoo.GroupSleigh()
CASES = {
    f"heavy body, {tau}": (
        Heavy(),
        heavy_start(),
        Problem(
            plain.SO3(), tau, np.asarray(Heavy().inertia()), heavy_form, heavy_potential,
            lambda q: q.reshape(3, 3),
        ),
    )
    for tau in ("exp", "cayley")
} | {
    "sleigh, mid": (
        SLEIGH,
        SLEIGH.start(),
        Problem(
            plain.SE2(), "mid", np.asarray(SLEIGH.inertia()), lambda g: np.array([[0.0, 1.0, 0.0]]),
            lambda g: 0 * g[..., 0],
        ),
    )
}  # fmt: skip
H = 0.05
STEPS = 28  # the heavy body with exp comes to a zero of G after 31


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """A problem, a run, and its method."""
    system, start, problem = CASES[request.param]
    method = da.EDLA(Retraction(problem.tau))
    return problem, da.simulate(system, method, *start, h=H, steps=STEPS), start


def lagrangian(problem, g0, g1, h):
    kinetic = plain.discrete_lagrangian(problem.group, problem.tau, problem.inertia, g0, g1, h)
    return kinetic - h / 2 * (problem.potential(g0) + problem.potential(g1))


def departing(problem, g0, g1, h):
    return -lagrangian(problem, problem.group.mul(g0, problem.group.stencil), g1, h) @ WEIGHTS / SPREAD


def arriving(problem, g0, g1, h):
    return lagrangian(problem, g0, problem.group.mul(g1, problem.group.stencil), h) @ WEIGHTS / SPREAD


def energy(problem, g0, g1, h):
    """-dL_d/dh, by differences whose step is a fraction of h, because L_d goes as 1/h."""
    d = 0.01 * h
    values = np.array([lagrangian(problem, g0, g1, h + k * d) for k in plain.OFFSETS])
    return -values @ WEIGHTS / d


def test_the_equations_of_every_step(case):
    """Energy, momentum and constraint where two steps meet, from L_d alone: [cortes2003] (6) on a group."""
    problem, sol, _ = case
    group, h = problem.group, sol.step_data["h"]
    g = [problem.element(q) for q in sol.q]
    for k in range(1, STEPS):
        a = problem.form(g[k])
        kick = departing(problem, g[k], g[k + 1], h[k + 1]) - arriving(problem, g[k - 1], g[k], h[k])
        lam = sol.multipliers[k + 1] * 0.5 * (h[k] + h[k + 1])
        # Differences of order ten of numbers of size 1/h: 1e-13.
        np.testing.assert_allclose(kick, a.T @ lam, atol=2e-12)
        before, after = (energy(problem, g[i], g[i + 1], h[i + 1]) for i in (k - 1, k))
        # The same, divided by a hundredth of h.
        assert abs(after - before) < 1e-11
        assert after == pytest.approx(sol.step_data["E_plus"][k + 1], abs=1e-11)
        u = group.untau(problem.tau, group.mul(group.inv(g[k]), g[k + 1])) / h[k + 1]
        held = 0.5 * (a + problem.form(g[k + 1])) @ u
        assert np.max(np.abs(held)) < 1e-14 / H  # rounding of an element, over h


def test_energy_constraint_and_order(case):
    _, sol, start = case
    told = sol.step_data["E_plus"][1:]
    assert np.ptp(told) < 1e-13 * np.max(np.abs(told))  # pinned: a few roundings
    assert np.max(sol.constraint_residual()) < 1e-14
    assert np.ptp(sol.step_data["h"]) > 1e-3 * H  # the steps do differ
    laws = variable_step_laws(sol)
    assert laws.energy < 1e-13
    assert laws.symplectic < 1e-12  # as in coordinates
    assert laws.form > 1e-2
    errors = []
    for n in (1, 2):
        sol = da.simulate(sol.system, sol.method, *start, h=H / n, steps=20 * n)
        exact = da.simulate(sol.system, da.Reference(), *start, h=float(sol.t[-1]), steps=1)
        errors.append(np.max(np.abs(sol.q[-1] - exact.q[-1])))
    # Order 2: the quotient is 4, and the ends of the two runs differ by O(h^2).
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)


def test_momentum_equations():
    """On SE(2) with a momentum that changes by the equation, and on SO(3) with two that are kept."""
    sol = da.simulate(SLEIGH, da.EDLA(Retraction("mid")), *SLEIGH.start(), h=H, steps=40)
    laws = variable_step_laws(sol)
    assert set(laws.momentum) == set(SLEIGH.sections())
    assert laws.momentum
    assert all(x < 1e-13 for x in laws.momentum.values())
    body = da.zoo.RoundBody("SO(3)", "right-invariant")
    sol = da.simulate(body, da.EDLA(Retraction("cayley")), *body.start(), h=H, steps=40)
    laws = variable_step_laws(sol)
    assert set(laws.momentum) >= {"space axis 1", "space axis 2"}
    assert all(x < 1e-13 for x in laws.momentum.values())
    # A momentum that is not the run's own does not satisfy them.
    wrong = sol.step_data | {"p_plus": sol.step_data["p_plus"] + 1e-3 * np.arange(41)[:, None]}
    sol.step_data.update(wrong)
    assert max(variable_step_laws(sol).momentum.values()) > 1e-6


def test_own_functions_of_the_increment():
    """The Moser-Veselov function in place of a retraction, against the equations in matrices: W J - J W^T = h M."""
    body = da.zoo.Suslov()

    def moser_veselov(system, w, h):
        inertia = system.inertia()
        j = 0.5 * jnp.trace(inertia) * jnp.eye(3) - inertia
        return jnp.trace(j @ (jnp.eye(3) - w.reshape(3, 3))) / h

    method = da.EDLA(LeftInvariant(moser_veselov, is_symmetric=True))
    sol = da.simulate(body, method, *body.start(), h=H, steps=40)
    inertia = np.asarray(body.inertia())
    j = 0.5 * np.trace(inertia) * np.eye(3) - inertia
    g, h = sol.q.reshape(-1, 3, 3), sol.step_data["h"]
    w = [a.T @ b for a, b in pairwise(g)]
    energies = np.array([np.trace(j @ (np.eye(3) - x)) / k**2 for x, k in zip(w, h[1:], strict=True)])
    # l(W)/h is a difference of numbers of size one over h^2.
    assert np.ptp(energies) < 50 * np.finfo(float).eps / np.min(h) ** 2
    form = np.asarray(body.constraints(body.start()[0]))
    for k in range(1, 40):
        minus = plain.unskew(w[k] @ j - j @ w[k].T) / h[k + 1]
        plus = plain.unskew(j @ w[k - 1] - w[k - 1].T @ j) / h[k]
        along = minus - plus - form.T @ np.linalg.solve(form @ form.T, form @ (minus - plus))
        assert np.max(np.abs(along)) < 1e-12  # rounding over h


def test_what_is_refused_on_groups():
    body = da.zoo.Suslov()
    with pytest.raises(ValueError, match=r"EDLA works in coordinates, but Suslov lives on the group SO\(3\)"):
        da.simulate(body, da.EDLA(), *body.start(), h=0.1, steps=2)
    knife = da.zoo.KnifeEdge()
    with pytest.raises(
        ValueError, match="EDLA is defined on Lie groups, but KnifeEdge is given in coordinates"
    ):
        da.simulate(knife, da.EDLA(Retraction("exp")), *knife.start(), h=0.1, steps=2)
    with pytest.raises(ValueError, match=r"SO\(3\) has no retraction 'mid'; choose one of: exp, cayley"):
        da.simulate(body, da.EDLA(Retraction("mid")), *body.start(), h=0.1, steps=2)


def test_saved_and_loaded_with_their_method(tmp_path):
    body, method = da.zoo.Suslov(), da.EDLA(Retraction("cayley"))
    sol = da.simulate(body, method, *body.start(), h=H, steps=10)
    sol.save(tmp_path / "run.zarr")
    found = da.load(tmp_path / "run.zarr", system=body)
    assert found.method == method
    np.testing.assert_array_equal(found.step_data["p_plus"], sol.step_data["p_plus"])
