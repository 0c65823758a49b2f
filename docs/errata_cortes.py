"""The evidence for what docs/errata.md says about [cortes2003]; `python docs/errata.py NAME ...` shows it."""

import jax
import jax.numpy as jnp
import numpy as np

import dalembert as da
from dalembert.discrete import Midpoint, PointConstraint, between, spacetime_constraint, spacetime_derivatives
from dalembert.model import SpaceTime

ZOO = da.zoo
MIDPOINT = Midpoint()
# Rounding of about a hundred steps, for numbers of order one; a deliberate failure is a thousandth or more.
ROUNDING, FAILURE = 1e-12, 1e-3


def _say(*words):
    print("   ", *words)


def _largest(x):
    return float(np.max(np.abs(np.asarray(x))))


def _run(system, method=None, h=0.05, steps=40, **options):
    return da.simulate(system, method or da.EDLA(), *system.start(), h=h, steps=steps, **options)


def _points(run):
    """The points (t, q) of a run, (K, 1 + n)."""
    return jnp.concatenate([jnp.asarray(run.t)[:, None], jnp.asarray(run.q)], axis=1)


def _derivatives(system, z):
    """(D1, D2) and (D3, D4) of L_d for every pair of neighbours on a path."""
    found = jax.vmap(lambda a, b: spacetime_derivatives(MIDPOINT, system, *between(a, b)))
    return jax.jit(found)(z[:-1], z[1:])


class WithoutTime(da.EDLA):
    """The equations (6) as printed, without omega0 lam in the equation of energies."""

    def beginning(self, system, state, p, energy):
        s = super().beginning(system, state, p, energy)
        return s._replace(offsets=0 * s.offsets)


class Steered(da.RheonomicSystem):
    """z' = (1 + sin(t)/2) y x': a linear constraint whose coefficients depend on time; L does not."""

    coordinates = ("x", "y", "z")

    def metric(self, t, q):
        return jnp.eye(3)

    def potential(self, t, q):
        return 0.5 * (q[0] ** 2 + q[1] ** 2)

    def constraints(self, t, q):
        return jnp.array([[-(1 + 0.5 * jnp.sin(t)) * q[1], 0.0, 1.0]])

    def starts(self):
        return {"default": ([1.0, 0.6, 0.5], [1.0, 0.5, 0.6])}


def time_part_of_the_forms():
    """tau_*(D) = TR does not make omega0 vanish: for z' = y x' + 0.3 cos t, the equations (6) need omega0 lam."""
    particle = ZOO.RheonomicParticle()
    _say("z' = y x' + 0.3 cos t, first steps of h = 0.1, 0.05, 0.025, until t = 1:")
    for method in (da.EDLA(), WithoutTime()):
        errors, made = [], []
        for h in (0.1, 0.05, 0.025):
            run = _run(particle, method, h, round(1 / h), throw=False)
            exact = da.simulate(particle, da.Reference(), *particle.start(), h=float(run.t[-1]), steps=1)
            errors.append(_largest(run.q[-1] - exact.q[-1]))
            made.append(int(run.steps))
        if type(method) is da.EDLA:
            order = np.log2(errors[1] / errors[2])
            _say("with omega0: errors", *(f"{x:.2g}" for x in errors), f"order {order:.2f}")
            assert made == [10, 20, 40]
            assert abs(order - 2) < 0.05  # the next power of h, at these steps
        else:
            _say(f"without: runs end after {made} steps, of which the first is given")
            _say(f"    {run.status.value}")
            assert made == [2, 1, 1]


def autonomous_is_not_enough():
    """Proposition 4 requires omega0 = 0: the ball on a turntable is autonomous, but its energy changes."""
    ball = ZOO.BallOnTurntable()
    run = _run(ball, h=0.1, steps=100)
    exact, speed = ball.solution(run.t, *ball.start())
    kinetic = 0.5 * np.einsum("ki,ij,kj->k", speed, ball.metric(exact[0]), speed)
    energy = run.step_data["E_plus"][1:]
    moving = energy - np.sum(run.step_data["p_plus"] * jax.vmap(ball.drift)(jnp.asarray(run.q)), axis=1)[1:]
    _say(f"until t = 10 E^+ goes from {energy.min():.3f} to {energy.max():.3f}, the exact energy")
    _say(
        f"    from {kinetic.min():.3f} to {kinetic.max():.3f}; the points are off by {_largest(run.q - exact):.1e}"
    )
    _say(f"E^+ minus p . Z, with the table's velocity Z, changes by {np.ptp(moving):.0e}")
    assert np.ptp(energy) > 0.5
    assert _largest(run.q - exact) < 1e-3  # order 2 at h = 0.1
    assert np.ptp(moving) < ROUNDING
    printed = _run(ball, WithoutTime(), 0.1, 100, throw=False)
    _say(f"as printed, without omega0: {int(printed.steps)} step of 100, the given one, and no further step")
    assert printed.steps == 1


def energy_of_a_changing_constraint():
    """Proposition 4 does not require that D is autonomous: an autonomous L_d and omega0 = 0 are sufficient."""
    run = _run(Steered(), steps=200)
    change = np.ptp(run.step_data["E_plus"][1:])
    _say(f"z' = (1 + sin(t)/2) y x', 200 steps to t = {run.t[-1]:.1f}: E^+ changes by {change:.0e}")
    assert change < ROUNDING


def pairs_of_points():
    """The discrete constraint holds for pairs (c(k), c(k+1)), k < N; it says nothing about single points c(k)."""
    particle = ZOO.RheonomicParticle()
    run = _points(_run(particle))
    below = run.at[:, 3].set(0.0)  # the same points, moved down to z = 0

    @jax.jit
    @jax.vmap
    def held(a, b):
        """omega_d times the size of the step, which is defined even if both points are the same."""
        return SpaceTime(particle).constraints(0.5 * (a + b)) @ (b - a)

    for name, path in (("the run", run), ("points with z = 0", below)):
        pairs, alone = _largest(held(path[:-1], path[1:])), _largest(held(path, path))
        _say(f"{name}: omega_d of (c(k), c(k+1)) {pairs:.1g}, of (c(k), c(k)) {alone:.1g}")
        assert alone == 0
        assert pairs < ROUNDING if name == "the run" else pairs > FAILURE
    size = run.shape[1]
    _say(f"c(k) has {size} coordinates, D_d lies in a space of {2 * size}")


def two_boundary_forms():
    """The second one-form of Theorem 2 is Theta^-: with Theta^+ twice, neither (2) nor dL_d is right."""
    well, random = ZOO.TravellingWell(), np.random.default_rng(4)
    path = jnp.asarray(np.cumsum(random.uniform(0.5, 1.5, (6, 4)), axis=0))
    change = jnp.asarray(random.uniform(-1, 1, path.shape))

    @jax.jit
    def action(z):
        steps = jax.vmap(lambda a, b: MIDPOINT(well.at(a[0]), *between(a, b)[1:3], b[0] - a[0]))
        return jnp.sum(steps(z[:-1], z[1:]))

    whole = float(jax.jvp(action, (path,), (change,))[1])
    before, after = _derivatives(well, path)
    inner = float(jnp.sum((before[1:] + after[:-1]) * change[1:-1]))
    end = float(after[-1] @ change[-1])
    for name, begin in (("Theta^-", -before[0] @ change[0]), ("Theta^+", after[0] @ change[1])):
        off = abs(whole - (inner + end - float(begin)))
        _say(f"a random path in space and time: (2) with {name} at its beginning is off by {off:.2g}")
        assert off < ROUNDING * abs(whole) if name == "Theta^-" else off > FAILURE


def discrete_dimensions():
    """T D_d + V x V is T(Q x Q), where Q includes the time; T Q has half its dimension."""
    particle = ZOO.NonholonomicParticle(lambda q: 0.5 * (q[0] ** 2 + q[1] ** 2))
    z = _points(_run(particle))
    size = z.shape[1]

    def held(x):
        return spacetime_constraint(PointConstraint(), particle, *between(x[:size], x[size:]))

    form = np.asarray(jax.jacfwd(held)(jnp.concatenate([z[3], z[4]])))
    tangent = np.linalg.svd(form)[2][1:]  # vectors along D_d
    vertical = np.zeros((2, 2 * size))
    vertical[0, size - 1] = vertical[1, -1] = 1  # z of either point: the group of translations of z
    along, total = (int(np.linalg.matrix_rank(x)) for x in (tangent, np.concatenate([tangent, vertical])))
    _say(
        f"particle, translations of z: T D_d has dimension {along}, V x V {len(vertical)}, their sum {total}"
    )
    _say(f"    T(Q x Q) has {2 * size}, T Q has {size}")
    assert (along, total, size) == (7, 8, 4)


class Free(da.RheonomicSystem):
    """The free particle with z' = y x'; time, x and z may be shifted, the time by more if x is large."""

    coordinates = ("x", "y", "z")

    def metric(self, t, q):
        return jnp.eye(3)

    def constraints(self, t, q):
        return jnp.array([[-q[1], 0.0, 1.0]])

    def generators(self, t, q):
        return jnp.eye(4)[:, jnp.array([0, 1, 3])]

    def sections(self):
        return {"with time": lambda t, q: jnp.stack([q[0] ** 2, jnp.ones(()), q[1]])}

    def starts(self):
        return ZOO.NonholonomicParticle().starts()


def time_in_the_momentum_equation():
    """The generator in (7) is that on R x Q, as in the proof: without its time part, the equation fails."""
    run = _run(Free(), h=0.1)
    z, whole = _points(run), SpaceTime(run.system)
    section, generators = (jax.vmap(f)(z) for f in (whole.sections()["with time"], whole.generators))
    momenta = jnp.einsum("kij,ki->kj", generators[1:], _derivatives(run.system, z)[1])
    j = jnp.sum(momenta * section[1:], axis=1)
    turned = momenta[1:] * (section[2:] - section[1:-1])  # the first column is the time's
    full, printed = (_largest(j[1:] - j[:-1] - jnp.sum(x, axis=1)) for x in (turned, turned[:, 1:]))
    _say(f"residual of (7) with the time part of the generator {full:.0e}, without it {printed:.2f}")
    assert full < ROUNDING
    assert printed > FAILURE


def invariant_lagrangian_is_enough():
    """Proposition 1 requires that L_d, D_d and D are invariant; an invariant L_d is sufficient."""
    disk = ZOO.RollingDisk()
    run = _run(disk, h=0.1)
    forms = [disk.constraints(run.q[0] + np.array([0, 0, 0, turn])) for turn in (0.0, 1.0)]
    heading = run.step_data["p_plus"][1:, 3]
    _say(f"disk, its heading turned by 1.0: the one-forms change by {_largest(forms[1] - forms[0]):.2f}")
    _say(f"    in 40 steps the momentum of the heading changes by {np.ptp(heading):.0e}")
    assert _largest(forms[1] - forms[0]) > 0.1
    assert np.ptp(heading) < ROUNDING


class InField(da.System):
    """The particle with z' = y x' in V = (a x^2 + b y^2)/2 + g z + c."""

    coordinates = ("x", "y", "z")
    a: float = 0.0
    b: float = 0.0
    g: float = 0.0
    c: float = 0.0

    def metric(self, q):
        return jnp.eye(3)

    def potential(self, q):
        return 0.5 * (self.a * q[0] ** 2 + self.b * q[1] ** 2) + self.g * q[2] + self.c

    def constraints(self, q):
        return jnp.array([[-q[1], 0.0, 1.0]])

    def starts(self):
        return {"default": ([1.0, 0.6, 0.5], [1.0, 0.5, 0.6])}


def where_steps_exist():
    """Remark 2: steps end where G changes sign, whatever the energy, which a constant in V shifts arbitrarily."""
    exact = _run(InField(b=1.0), da.Reference(), 0.01, 250)
    reaction = np.sum(exact.multipliers**2 * (1 + exact.q[:, 1:2] ** 2), axis=1)
    eight = reaction - exact.q[:, 1] ** 2 - exact.v[:, 1] ** 2  # 8 G = |R|^2 - |grad V|^2 - V''(v, v)
    i = np.flatnonzero(np.diff(np.sign(eight)))[0]
    zero = float(np.interp(0.0, eight[i : i + 2] * np.sign(eight[i + 1]), exact.t[i : i + 2]))
    sizes = (0.05, 0.025, 0.0125, 0.00625)
    for name, particle in (("y^2/2", InField(b=1.0)), ("y^2/2 + 10", InField(b=1.0, c=10.0))):
        runs = [_run(particle, h=h, steps=2000, throw=False) for h in sizes]
        ends = [float(run.t[-1]) for run in runs]
        energy = float(runs[-1].step_data["E_plus"][-1])
        _say(f"V = {name}: energy {energy:.2f}, G changes sign at {zero:.2f}; from first steps of")
        _say("   ", *sizes, "the last steps end at", *(f"{x:.2f}" for x in ends))
        assert all(run.status is da.Status.NO_ROOT for run in runs)
        assert _largest(np.array(ends) - zero) < 0.05  # a step or two near the end, where they grow
        assert all(run.step_data["S"][-1] != 0 for run in runs)
    none = InField(a=1.0, b=1.0, c=-1.485)
    run = _run(none, steps=2000)
    _say(f"V = (x^2 + y^2)/2 - 1.485: energy {abs(run.energy()[0]):.0e}, all {int(run.steps)} steps exist")
    assert abs(run.energy()[0]) < ROUNDING
    over = _run(InField(g=1.0), h=0.00625, steps=200)
    g, t, h = over.step_data["G"], over.t, over.step_data["h"]
    k = int(np.flatnonzero(np.diff(np.sign(g[1:])))[0]) + 1
    _say(
        f"V = z, h = 0.00625: one step of {h[k]:.3f}, {h[k] / h[k - 1]:.1f} times the last, to t = {t[k]:.2f}"
    )
    _say("    leaps over the zero of G and keeps the energy; do not rely on this")
    assert np.ptp(over.step_data["E_plus"][1:]) < ROUNDING
