"""The evidence for the errata of Modin and Verdier that concern reversals, averages and the definitions of methods."""

import jax.numpy as jnp
import numpy as np

import dalembert as da
from dalembert.diagnostics import CoupledSystem, action_angle, averaging, periodic_averaging, step_map
from dalembert.diagnostics.logarithms import negative_eigenvalues, one_logarithm

ZOO = da.zoo


def _say(*words):
    print("   ", *words)


def reversal_of_the_knife_edge():
    """(v, xi, -xi') does not reverse the knife edge; (-v, xi, -xi') and (v, pi - xi, xi') do."""
    coupled = CoupledSystem.of(ZOO.KnifeEdge())

    def field(z):
        """The derivative of (v, xi, xi')."""
        _, v, xi, eta = coupled.reduced_field(jnp.zeros(0), *map(jnp.asarray, z))
        return np.array([v, xi, eta])

    maps = {
        "(v, xi, -xi')": (np.array([1.0, 1.0, -1.0]), 0.0),
        "(-v, xi, -xi')": (np.array([-1.0, 1.0, -1.0]), 0.0),
        "(v, pi - xi, xi')": (np.array([1.0, -1.0, 1.0]), np.pi),
    }
    defects = {}
    for name, (signs, turn) in maps.items():
        # A map R with the linear part `signs` reverses the field if f(R z) = -signs f(z).
        shift = np.array([0.0, turn, 0.0])
        states = np.random.default_rng(1).uniform(-2, 2, (50, 3))
        defects[name] = max(np.max(np.abs(field(signs * z + shift) + signs * field(z))) for z in states)
    _say("largest violation of f(R z) = -DR f(z):", {k: f"{v:.1e}" for k, v in defects.items()})
    assert defects["(v, xi, -xi')"] > 1.9  # 2 |cos(xi)|
    assert max(defects["(-v, xi, -xi')"], defects["(v, pi - xi, xi')"]) < 1e-12


def reversible_integrator():
    """Appendix A defines reversible by Phi^-1(q, q') = Phi(q, -q'); the velocity of the result must be reversed too."""
    system, method, h = ZOO.PendulumCVT(), da.DLA(0.5), 0.1
    q0, v0 = (np.asarray(x)[None] for x in system.start())
    q1, v1 = step_map(system, method, h, q0, v0)
    q2, v2 = step_map(system, method, h, q1, -v1)
    printed = max(np.max(np.abs(q2 - q0)), np.max(np.abs(v2 - v0)))
    flipped = max(np.max(np.abs(q2 - q0)), np.max(np.abs(-v2 - v0)))
    _say(
        f"Phi(q1, -v1) differs from Phi^-1(q1, v1) by {printed:.3g}, and by {flipped:.1e} with its velocity reversed"
    )
    assert printed > 3.0 > 1e-12 > flipped


def exponential_is_not_onto():
    """Theorem 4.2 takes a logarithm of the period map; Mathieu's equation in sl(2, R) has maps without any."""

    def mathieu(t):
        return jnp.array([[0.0, 1.0], [-1.0 + 1.2 * jnp.cos(2 * t), 0.0]])

    found = periodic_averaging(mathieu, np.pi)
    _say(f"trace {np.trace(found.map):.4f}, eigenvalues", np.round(negative_eigenvalues(found.map), 4))
    _say("real logarithm over one period:", one_logarithm(found.map))
    _say(f"over two periods: average in sl(2, R) to {found.algebra_defect:.0e}")
    u, there = np.array([1.0, 0.3]), [found.change([1.0, 0.3], x) for x in (0.2, 1.2, 2.2)]
    _say("w at the phases 0.2, 1.2, 2.2 for the same u =", u, np.round(there, 4).tolist())
    assert np.trace(found.map) < -2
    assert one_logarithm(found.map) is None
    assert found.periods == 2
    assert found.algebra_defect < 1e-10
    assert np.allclose(there[0], there[2], atol=1e-9)
    assert np.allclose(
        there[0], -there[1], atol=1e-9
    )  # so the period of the change of variables is two, not one


def half_turns_of_the_cvt():
    """Theorem 4.4 needs exp to be injective near the average; for one driver energy the CVT makes a half turn."""
    low = action_angle(ZOO.HarmonicCVT(), 0.0, 0.5)
    bounds = [low.energy, 2.0]
    half = np.floor((low.turns[0] / np.pi - 1) / 2)
    for _ in range(40):
        middle = 0.5 * sum(bounds)
        side = np.floor((low.at_energy(middle).turns[0] / np.pi - 1) / 2) == half
        bounds[0 if side else 1] = middle
    energy = 0.5 * sum(bounds)
    rotation = averaging(low.coupled, 0.0, float(np.sqrt(2 * energy))).orbit.rotation
    values = np.sort(np.linalg.eigvals(rotation).real)
    _say(f"driver energy {energy:.9f}: eigenvalues of the period map", np.round(values, 6))
    assert np.allclose(values, [-1, -1, 1], atol=1e-6)


def linearly_implicit():
    """(29) is linear in the multiplier only if the reaction does not move what A depends on."""
    h = 0.1

    def bends(a, q0, v0):
        """The second difference of A(q1) q1' in the multiplier, for V = 0, relative to the first."""
        half = q0 + h / 2 * v0

        def rest(multiplier):
            v1 = v0 + h * a(half) * multiplier
            return a(half + h / 2 * v1) @ v1

        x = [rest(y) for y in (-1.0, 0.0, 1.0)]
        return abs(x[2] - 2 * x[1] + x[0]) / abs(x[2] - x[0])

    q, v = np.array([0.3, 0.4, 0.5]), np.array([1.0, 0.5, 0.9])
    linear = bends(lambda q: np.array([1.0, np.sin(q[2]), 0.0]), q, v)
    curved = bends(lambda q: np.array([-q[1] - q[2], 0.0, 1.0]), q, v)
    _say(f"bend for the CVT {linear:.1e}, for z' = (y + z) x' {curved:.1e}")
    assert linear < 1e-13 < 1e-4 < curved


def phases_of_the_involution():
    """The involutions of Proposition 5.4 satisfy (24) about certain phases of the driver only."""
    cases = {
        "harmonic CVT, (y, -v)": (ZOO.HarmonicCVT(), (1.0, 1.0, -1.0), (0.0, 1.0), {16, 48}),
        "particle, (y, -v)": (ZOO.SpringParticle(), (1.0, -1.0), (0.0, 1.0), {0, 16, 32, 48}),
        "knife edge, v": (ZOO.KnifeEdge(), (1.0,), (0.0, 1.0), {16, 48}),
    }
    count = 64
    for name, (system, signs, base, expected) in cases.items():
        samples = averaging(CoupledSystem.of(system), *base).evolution(count)
        rho = np.diag([*signs, 1.0])
        defects = []
        for j in range(count):
            based = np.roll(samples, -j, axis=0)
            back = np.roll(based[::-1], 1, axis=0)
            defects.append(np.max(np.abs(rho @ based @ rho + back)))
        good = [j / count for j, x in enumerate(defects) if x < 1e-9]
        _say(
            f"{name}: (24) holds about the phases {good} after xi = 0; elsewhere it is off by up to {max(defects):.2f}"
        )
        assert {round(x * count) for x in good} == expected
        assert max(defects) > 0.2
