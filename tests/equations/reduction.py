"""Discrete reduction of nonholonomic systems by a symmetry group, in plain NumPy.

A second road to the numbers of the library, with which this module shares no code.  Coordinates split as
q = (r, g), r the shape, g in a group that acts from the left; f = g0^-1 g1 and L_d(q0, q1) = ell(r0, r1, f).
A pair (r0, r1) is passed as (r, d) with r = r0 and d = r1 - r0, to spare differences of large numbers.  The
examples give ell, F, A, ... as formulas found by hand; their first derivatives are complex steps, exact to
rounding.  Functions take components along the first axis and may have a batch behind it.

L_d is the midpoint rule, h L(qm, (q1 - q0) / h).  A start (q0, v0) means p0 = M v0, which stands in the first
equation where later ones have D2 L_d.  Sources: J. Fernandez, C. Tori, M. Zuccalli, Reduction of discrete
nonholonomic mechanical systems with symmetry [fernandez2008]; J. Cortes, Energy conserving nonholonomic
integrators [cortes2003].
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from equations import variable_steps as steps_of
from equations.variable_steps import Problem, array, gradient, jacobian


def settle(residual, y, step):
    """Solve residual(y) = 0 by Newton until the corrections no longer shrink; `step` is that of the Jacobian."""
    last = np.inf
    for _ in range(40):
        r, j = jacobian(residual, y, step)
        move = np.linalg.solve(j, r)
        size = np.abs(move).max()
        if last < 1e-8 and size >= last:
            return y
        y, last = y - move, size
    raise ArithmeticError("Newton did not settle")


def secant(f, a, b):
    """A root of f near a and b, to about 1e-8; no step is longer than 3/10 of its start."""
    fa, fb = f(a), f(b)
    for _ in range(40):
        c = np.clip(b - fb * (b - a) / (fb - fa), 0.7 * b, 1.3 * b)
        if abs(c - b) < 1e-8 * b:
            return c
        a, b, fa, fb = b, c, fb, f(c)
    raise ArithmeticError("no root found")


def slots(f, r, d):
    """D1 f and D2 f of a function f(r, d) of the pair (r, r + d), the derivatives along the first axis."""
    k = len(d)
    g = gradient(lambda z: f(z[:k], z[k:]), np.array(np.broadcast_arrays(*r, *d)))
    return g[:k] - g[k:], g[k:]


def march(residual, after, r, plus, guess, steps, step):
    """Points r_k and solutions y = (r_{k+1} - r_k, ...) of residual(r_k, plus, y) = 0; next plus = after(r_k, y)."""
    points, found = [r], []
    for _ in range(steps):
        fixed = points[-1][:, None], plus[:, None]  # with an axis for the batch of y
        guess = settle(lambda y, fixed=fixed: residual(*fixed, y), guess, step)
        plus = after(points[-1], guess)
        found.append(guess)
        points.append(points[-1] + guess[: r.size])
    return np.array(points), np.array(found)


class Group(NamedTuple):
    """Matrices left(f), right(f) of the translations by f, at e; in our coordinates g f = g + left(g) f."""

    left: Callable
    right: Callable


TRANSLATIONS = Group(lambda f: np.eye(len(f)), lambda f: np.eye(len(f)))
SE2 = Group(  # (x, y, angle)
    lambda f: array(f[2], [[np.cos(f[2]), -np.sin(f[2]), 0], [np.sin(f[2]), np.cos(f[2]), 0], [0, 0, 1]]),
    lambda f: array(f[2], [[1, 0, -f[1]], [0, 1, f[0]], [0, 0, 1]]),
)


@dataclass(frozen=True)
class Example:
    """A system with a symmetry: `shape` and `group_indices` say which coordinates of q are r and which are g.

    ell(h, r, d, f) is the discrete Lagrangian.  `own(h, q, dq)`, where given, replaces the midpoint D_d of q.
    what(r) dr = 0 and phi(h, r, d, f) = 0 are the constraints that the reduction leaves, if any.
    """

    problem: Problem
    shape: list
    group_indices: list
    ell: Callable
    h: float = 0.1
    own: Callable | None = None
    what: Callable = lambda r: np.zeros((0, len(r)))
    phi: Callable = lambda h, r, d, f: d[:0]
    group: Group = TRANSLATIONS

    q0 = property(lambda self: self.problem.q0.astype(float))
    v0 = property(lambda self: self.problem.v0.astype(float))
    p0 = property(lambda self: self.problem.mass(0.0, self.q0) @ self.v0)
    parts = lambda self, row: (row[self.shape], row[self.group_indices])  # along r and along g

    def full(self, steps):
        """q_0 ... q_steps of D1 L_d + D2 L_d = mu^T lam, (q_k, q_{k+1}) in D_d: [fernandez2008], first display."""
        n, p = self.q0.size, self.problem

        def residual(q, plus, y):
            timed, plus = np.concatenate([self.h + 0 * y[:1], y]), np.concatenate([0 * plus[:1], plus])
            out = steps_of.residual(p, 0.5, 0.0, q, plus, timed)[1:]
            return out if self.own is None else np.concatenate([out[:n], self.own(self.h, q, y[:n])])

        after = lambda q, y: steps_of.slots(p, 0.5, 0.0, q, self.h, y[:n])[1][1:]
        guess = np.concatenate([self.h * self.v0, np.zeros(len(p.forms(0.0, self.q0)))])
        return march(residual, after, self.q0, self.p0, guess, steps, self.h / 200)[0]

    def balance(self, r, plus, y):
        """The equations at r, with what^T lam, and phi of the new pair."""
        d, f, lam = self.split(r, y)
        out = self.at_node(r, plus, d, f)
        out[: len(r)] -= np.einsum("ai...,a...->i...", self.what(r), lam)
        return np.concatenate([out, self.phi(self.h, r, d, f)])

    def reconstruct(self, f):
        """g_{k+1} = g_k f_k, from g_0 of the start."""
        g = [self.parts(self.q0)[1]]
        for factor in f:
            g.append(g[-1] + self.group.left(g[-1]) @ factor)
        return np.array(g)

    def reduced(self, steps):
        """(r, g), by the reduced equations and by reconstruction."""
        r, y = self.parts(self.q0)[0], np.concatenate(self.parts(self.h * self.v0))
        guess = np.concatenate([y[: r.size + self.free], np.zeros(len(self.what(r)))])
        r, y = march(self.balance, self.after, r, self.start(), guess, steps, self.h / 200)
        return r, self.reconstruct(self.split(r[:-1].T, y.T)[1].T)


@dataclass(frozen=True)
class Paired(Example):
    """f is a function of the pair, `shift`: the reduced equations of both theorems of [fernandez2008], item 4.

    D1 Lhat(r_k, r_{k+1}) + D2 Lhat(r_{k-1}, r_k) + beta0(r_k, r_{k+1}) + beta1(r_{k-1}, r_k) = what(r_k)^T lam.
    """

    F: Callable | None = None
    free = 0  # how many components of f are unknowns
    split = lambda self, r, y: (y[: len(r)], self.shift(r, y[: len(r)]), y[len(r) :])
    action = lambda self, r, d, f: self.ell(self.h, r, d, f)
    at_node = lambda self, r, plus, d, f: self.slots(r, d)[0] + plus
    after = lambda self, r, y: self.slots(r, y[: r.size])[1]

    def slots(self, r, d):
        """D1 Lhat + beta0 and D2 Lhat + beta1, which the pair adds to the equations at r0 and at r1."""
        return np.add(slots(lambda r, d: self.action(r, d, self.shift(r, d)), r, d), self.forces(r, d))

    # Lhat(r0, r1) = ell(r0, r1, F(r0, r1)): Lhat_d of [fernandez2008], L_d^* of [cortes2003]; beta0 is at r0.
    lhat = lambda self, r0, r1: self.action(r0, r1 - r0, self.shift(r0, r1 - r0))
    beta0 = lambda self, r0, r1: self.forces(r0, r1 - r0)[0]
    beta1 = lambda self, r0, r1: self.forces(r0, r1 - r0)[1]


@dataclass(frozen=True)
class Chaplygin(Paired):
    """D + V = TQ, D cap V = 0: D is g^-1 dg = -A(r) dr, A with s rows and k columns, and D_d is f = F(r, d)."""

    A: Callable | None = None
    shift = lambda self, r, d: self.F(r, d)  # where A_d(q0, q1) = g1 F^-1 g0^-1 of [fernandez2008] is e

    def forces(self, r, d):
        """beta0 = d_f ell (R_f A(r0) - d_r0 F) and beta1 = -d_f ell (L_f A(r1) + d_r1 F).

        They are -F^-, -F^+ of [cortes2003], Prop. 3; for R_f = L_f = 1 the betas of [fernandez2008], theorem 1.
        """
        f, (f0, f1) = self.F(r, d), slots(self.F, r, d)
        p = gradient(lambda f: self.action(r[..., None], d[..., None], f), f)
        carried = lambda by, at: np.einsum("ab...,bi...->ia...", by(f), self.A(at))
        pair = lambda a: np.einsum("a...,ia...->i...", p, a)
        return pair(carried(self.group.right, r) - f0), -pair(carried(self.group.left, r + d) + f1)

    def lift(self, r, g, dr):
        """The vertical part -g A(r) dr of the horizontal lift of dr."""
        return -np.einsum("ab...,bi...,i...->a...", self.group.left(g), self.A(r), dr)

    def start(self):
        """p0 on the horizontal lifts of the unit vectors: it stands for D2 Lhat + beta1 in the first step."""
        (r, g), (pr, pg) = self.parts(self.q0), self.parts(self.p0)
        return pr + np.array([pg @ self.lift(r, g, e) for e in np.eye(r.size)])

    def off_shell(self, r, dr):
        """dS_d(dq) - d sigma(dr) - sum (beta0 + beta1) dr: items 1 and 3 of the first theorem of [fernandez2008].

        For the path in D_d over any shapes r (rows), and dq the horizontal lift of any dr.  Zero for each pair,
        hence with free ends as well.
        """
        d = np.diff(r, axis=0).T
        g = self.reconstruct(self.F(r[:-1].T, d).T)
        order = np.argsort([*self.shape, *self.group_indices])
        q, dq = np.hstack([r, g]).T[order], np.concatenate([dr.T, self.lift(r.T, g.T, dr.T)])[order]
        whole = steps_of.slots(self.problem, 0.5, 0.0, q[:, :-1], self.h, np.diff(q))
        pair = lambda a, b, dx: np.sum(a * dx[:, :-1] + b * dx[:, 1:])
        return pair(*(a[1:] for a in whole), dq) - pair(*self.slots(r[:-1].T, d), dr.T)


@dataclass(frozen=True)
class Horizontal(Paired):
    """H = R^s, all of whose directions lie in D, at a level mu; F(h, mu, r, d) solves d_f ell = mu."""

    mu = property(lambda self: self.parts(self.p0)[1])
    shift = lambda self, r, d: self.F(self.h, self.mu, r, d)  # transversality, [fernandez2008]
    start = lambda self: self.parts(self.p0)[0]  # it stands for D2 Lhat + beta1 = d_r1 ell

    def forces(self, r, d):
        """beta0 = -mu d_r0 F_mu and beta1 = -mu d_r1 F_mu, of the second theorem of [fernandez2008]."""
        return [-np.einsum("a,ia...->i...", self.mu, a) for a in slots(self.shift, r, d)]


@dataclass(frozen=True)
class Abelian(Example):
    """Any translations: D is dg = -A(r) dr + sigma(r) c for any c, with what(r) dr = 0; D_d is phi = 0.

    The reduction announced in the last paragraph of [fernandez2008], with f among the unknowns and p = d_f ell:
    (p_k - p_{k-1}) sigma(r_k) = 0 and d_r0 ell_k + d_r1 ell_{k-1} + (p_k - p_{k-1}) A(r_k) = what(r_k)^T lam.
    """

    A: Callable | None = None
    sigma: Callable | None = None
    free = property(lambda self: len(self.group_indices))
    split = lambda self, r, y: np.split(y, [len(r), len(r) + self.free])
    start = lambda self: np.concatenate(self.parts(self.p0))
    after = lambda self, r, y: self.ends(r, *self.split(r, y)[:2])[1]

    def ends(self, r, d, f):
        """d_r0 ell and (d_r1 ell, p)."""
        k = len(d)
        ell = lambda z: self.ell(self.h, z[:k], z[k : 2 * k], z[2 * k :])
        g = gradient(ell, np.array(np.broadcast_arrays(*r, *d, *f)))
        return g[:k] - g[k : 2 * k], g[k:]

    def at_node(self, r, plus, d, f):
        """The equations of the class, those along sigma behind."""
        first, second = self.ends(r, d, f)
        change = second[len(r) :] - plus[len(r) :]
        pair = lambda a: np.einsum("ai...,a...->i...", a, change)
        return np.concatenate([first + plus[: len(r)] + pair(self.A(r)), pair(self.sigma(r))])


@dataclass(frozen=True)
class Extended(Chaplygin):
    """The same for z = (t, r): EDLA and its reduction REDLA.  `h` is the first step; rows of q begin with t.

    `time_forces` says whether the time components of the forces stay, which [cortes2003], Prop. 3, drops.
    """

    time_forces: bool = True
    q0 = property(lambda self: np.array([0.0, *self.problem.q0]))
    v0 = property(lambda self: np.array([1.0, *self.problem.v0]))
    p0 = property(lambda self: np.array([0.0, *self.problem.mass(0.0, self.problem.q0) @ self.problem.v0]))
    action = lambda self, r, d, f: self.ell(d[0], r[1:], d[1:], f)

    def forces(self, r, d):
        """-F^- and -F^+ of Prop. 3, with F^-_t = d_f ell (d_t0 F - A_t), F^+_t = d_f ell (d_t1 F + A_t)."""
        out = np.array(super().forces(r, d))
        out[:, 0] *= self.time_forces
        return out

    def full(self, steps):
        """(t, q)_0 ... (t, q)_steps by EDLA: [cortes2003] (6) with the omega0 term."""
        path = steps_of.run(self.problem, self.h, steps)
        return np.column_stack([path.t, path.q])

    def residuals(self, z):
        """What rows z = (t, r) leave in the REDLA equations, time first."""
        minus, plus = self.slots(z[:-1].T, np.diff(z, axis=0).T)
        return (minus[:, 1:] + plus[:, :-1]).T

    def at(self, z, plus, guess, length):
        """The increment of this length in time for which the r components of the equations hold."""
        rest = lambda x: self.balance(z, plus, np.concatenate([length + 0 * x[:1], x]))[1:]
        return np.array([length, *settle(rest, guess[1:] * length / guess[0], self.h / 200)])

    def step(self, z, plus, last, length):
        """The increment from z after `last`, of about this length in time; the length comes from the time component.

        That one, divided by length + last length, which takes the root -last away, goes to a secant iteration.
        """
        energy = lambda x: self.balance(z, plus, self.at(z, plus, last, x)[:, None])[0, 0] / (x + last[0])
        length = secant(energy, length, 1.01 * length)
        return settle(lambda y: self.balance(z, plus, y), self.at(z, plus, last, length), self.h / 200)

    def reduced(self, steps):
        """(z, g) from D1 L* + D2 L* = F^- + F^+, all components, after a first step of length h."""
        z = [self.parts(self.q0)[0]]
        d = [self.at(z[0][:, None], self.start()[:, None], self.parts(self.v0)[0], self.h)]
        while len(d) < steps:
            plus, guess = self.slots(z[-1], d[-1])[1], d[-1][0] ** 2 / d[max(len(d) - 2, 0)][0]
            z.append(z[-1] + d[-1])
            d.append(self.step(z[-1][:, None], plus[:, None], d[-1], guess))
        z.append(z[-1] + d[-1])
        return np.array(z), self.reconstruct(self.F(np.array(z[:-1]).T, np.array(d).T).T)
