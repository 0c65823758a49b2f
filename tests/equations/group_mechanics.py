"""The geometric nonholonomic integrator on Lie groups, without a single formula for Ad or dtau.

A second road to the numbers of the library, with which this module shares no code.  The discrete Lagrangian is

    L_d(g0, g1) = (h/2) <I xi, xi>,   h xi = tau^-1(g0^-1 g1),

and the left-trivialised momenta are its derivatives along one-parameter subgroups,

    p-_i = -d/ds L_d(g0 exp(s e_i), g1),   p+_i = d/ds L_d(g0, g1 exp(s e_i))   at s = 0,

by central differences of order ten.  L_d(g g0, g g1) = L_d(g0, g1), so a step is computed from g0 = e, where the
differences suffer no cancellation.  A step solves p-(xi) = p for xi by Newton, moves to g1 = g0 tau(h xi), and
reflects p+ there: p -> (1 - 2 Q^T) p with Q = I^-1 a^T (a I^-1 a^T)^-1 a.

Exponentials are scipy's expm of a faithful matrix representation, Cayley maps are matrix inversions; inverse
maps broadcast over leading axes.  Each group's docstring says how its elements are written.
"""

from functools import cached_property

import numpy as np
from scipy.linalg import expm

# Central difference of order ten, points -5 .. 5 times SPREAD; truncation and rounding are about 1e-15 at h = 0.1.
OFFSETS = np.arange(-5, 6)
WEIGHTS = np.array([-2, 25, -150, 600, -2100, 0, 2100, -600, 150, -25, 2]) / 2520
SPREAD = 0.03


def skew(x):
    """The matrix of the cross product with x."""
    return np.array([[0, -x[2], x[1]], [x[2], 0, -x[0]], [-x[1], x[0], 0]])


def unskew(m):
    """Inverse of skew, over leading axes; takes the skew part."""
    d = (m - np.swapaxes(m, -1, -2)) / 2
    return np.stack([d[..., 2, 1], d[..., 0, 2], d[..., 1, 0]], -1)


def cayley(x):
    """(1 - x/2)^-1 (1 + x/2) of a matrix."""
    one = np.eye(len(x))
    return np.linalg.solve(one - x / 2, one + x / 2)


def uncayley(w):
    """2 (w - 1)(w + 1)^-1 of a matrix, over leading axes."""
    return 2 * (w - np.eye(w.shape[-1])) @ np.linalg.inv(w + np.eye(w.shape[-1]))


class Group:
    """A group by its matrices: hat and vee for the algebra, mul and inv for the elements, retractions tau."""

    dim = 3

    def ad(self, x):
        """The matrix of y -> [x, y], the commutator of matrices."""
        m = self.hat(x)
        return np.stack([self.vee(m @ e - e @ m) for e in map(self.hat, np.eye(self.dim))], axis=-1)

    def tau(self, name, x):
        """Matrix exponential or matrix Cayley map."""
        return {"exp": expm, "cayley": cayley}[name](self.hat(x))

    @cached_property
    def stencil(self):
        """exp(s e_i), first axis i, second axis the points of the central difference."""
        return np.array([[self.tau("exp", s * SPREAD * e) for s in OFFSETS] for e in np.eye(self.dim)])


class SO3(Group):
    """Rotation matrices."""

    identity = np.eye(3)
    hat, vee = staticmethod(skew), staticmethod(unskew)
    mul, inv = staticmethod(np.matmul), staticmethod(np.linalg.inv)

    def untau(self, name, w):
        """Rotation vector from the skew part (sine) and the trace (cosine), or the inverse Cayley map."""
        if name == "cayley":
            return unskew(uncayley(w))
        x = unskew(w)
        sine = np.linalg.norm(x, axis=-1, keepdims=True)
        angle = np.arctan2(sine, (np.trace(w, axis1=-2, axis2=-1)[..., None] - 1) / 2)
        return x * np.where(sine > 0, angle / np.where(sine > 0, sine, 1), 1)


class S3(Group):
    """Unit quaternions (w, x, y, z); the algebra is scaled so that the bracket is the cross product."""

    identity = np.array([1.0, 0, 0, 0])

    def hat(self, x):
        """Left multiplication by the pure quaternion x/2, as a 4x4 matrix."""
        a, b, c = np.asarray(x) / 2
        return np.array([[0, -a, -b, -c], [a, 0, -c, b], [b, c, 0, -a], [c, -b, a, 0]])

    def vee(self, m):
        """Inverse of hat: the first column, doubled."""
        return 2 * m[1:, 0]

    def mul(self, g, h):
        """Hamilton's product."""
        a, b, u, v = g[..., :1], h[..., :1], g[..., 1:], h[..., 1:]
        return np.concatenate([a * b - np.sum(u * v, -1, keepdims=True), a * v + b * u + np.cross(u, v)], -1)

    def inv(self, g):
        """Conjugate."""
        return g * np.array([1, -1, -1, -1])

    def tau(self, name, x):
        """Exponential from the 4x4 matrix, or (1, x/2) normalised."""
        if name == "exp":
            return expm(self.hat(x))[:, 0]
        q = np.concatenate([[1.0], np.asarray(x) / 2])
        return q / np.linalg.norm(q)

    def untau(self, name, w):
        """Twice the angle of the quaternion along its vector part, or twice its tangent."""
        x, c = w[..., 1:], w[..., :1]
        if name == "cayley":
            return 2 * x / c
        s = np.linalg.norm(x, axis=-1, keepdims=True)
        return 2 * x * np.where(s > 0, np.arctan2(s, c) / np.where(s > 0, s, 1), 1)


class SE2(Group):
    """Planar motions (x, y, theta), with theta on the line; xi = (v1, v2, w)."""

    identity = np.zeros(3)

    def hat(self, x):
        """Homogeneous 3x3 matrix."""
        return np.array([[0, -x[2], x[0]], [x[2], 0, x[1]], [0, 0, 0]])

    def vee(self, m):
        """Inverse of hat."""
        return np.stack([m[..., 0, 2], m[..., 1, 2], m[..., 1, 0]], -1)

    def mul(self, g, h):
        """Translation in the complex plane."""
        z = g[..., 0] + 1j * g[..., 1] + np.exp(1j * g[..., 2]) * (h[..., 0] + 1j * h[..., 1])
        return np.stack([z.real, z.imag, g[..., 2] + h[..., 2]], -1)

    def inv(self, g):
        """Inverse motion."""
        z = -np.exp(-1j * g[..., 2]) * (g[..., 0] + 1j * g[..., 1])
        return np.stack([z.real, z.imag, -g[..., 2]], -1)

    def tau(self, name, x):
        """expm or Cayley of the homogeneous matrix, or "mid": translation by R(w/2) v, rotation by w."""
        if name == "mid":
            z = np.exp(0.5j * x[2]) * (x[0] + 1j * x[1])
            return np.array([z.real, z.imag, x[2]])
        m = super().tau(name, x)
        return np.array([m[0, 2], m[1, 2], np.arctan2(m[1, 0], m[0, 0])])

    def untau(self, name, w):
        """From z = v e^{iw/2} sinc(w/2) (exp), z = v e^{iw/2} (mid), or the inverse Cayley map."""
        angle = w[..., 2]
        if name == "cayley":
            m = np.zeros((*w.shape[:-1], 3, 3))
            m[..., 0, 0] = m[..., 1, 1] = np.cos(angle)
            m[..., 1, 0], m[..., 0, 1] = np.sin(angle), -np.sin(angle)
            m[..., :2, 2], m[..., 2, 2] = w[..., :2], 1
            return self.vee(uncayley(m))
        v = (w[..., 0] + 1j * w[..., 1]) * np.exp(-0.5j * angle)
        v = v / np.sinc(angle / (2 * np.pi)) if name == "exp" else v
        return np.stack([v.real, v.imag, angle], -1)


class SE3(SO3):
    """Rigid motions as 4x4 matrices; xi = (v, omega); product, inverse, tau as for rotations."""

    dim = 6
    identity = np.eye(4)

    def hat(self, x):
        """[[skew(omega), v], [0, 0]]."""
        m = np.zeros((4, 4))
        m[:3, :3], m[:3, 3] = skew(x[3:]), x[:3]
        return m

    def vee(self, m):
        """Inverse of hat."""
        return np.concatenate([m[..., :3, 3], unskew(m[..., :3, :3])], -1)

    def untau(self, name, w):
        """Logarithm: omega from the rotation, v from the integral of exp(s omega) over [0, 1]; or Cayley."""
        if name == "cayley":
            return self.vee(uncayley(w))
        omega = super().untau("exp", w[..., :3, :3])
        t = np.linalg.norm(omega, axis=-1)[..., None, None]
        safe = np.where(t > 0, t, 1)
        m = np.cross(omega[..., None, :], -np.eye(3), axis=-1)
        integral = np.eye(3) + np.sinc(t / (2 * np.pi)) ** 2 / 2 * m + (t - np.sin(t)) / safe**3 * m @ m
        return np.concatenate([np.linalg.solve(integral, w[..., :3, 3:])[..., 0], omega], -1)


class H3(Group):
    """Heisenberg group: (a, b, c)(a', b', c') = (a + a', b + b', c + c' + a b')."""

    identity = np.zeros(3)

    def hat(self, x):
        """Strictly upper triangular matrix."""
        return np.array([[0, x[0], x[2]], [0, 0, x[1]], [0, 0, 0]])

    def vee(self, m):
        """Inverse of hat."""
        return np.stack([m[..., 0, 1], m[..., 1, 2], m[..., 0, 2]], -1)

    def mul(self, g, h):
        """Product of the unipotent matrices."""
        return g + h + (g[..., 0] * h[..., 1])[..., None] * np.array([0, 0, 1])

    def inv(self, g):
        """Inverse."""
        return np.stack([-g[..., 0], -g[..., 1], g[..., 0] * g[..., 1] - g[..., 2]], -1)

    def tau(self, name, x):
        """expm, with which Cayley agrees here."""
        return self.vee(super().tau(name, x))

    def untau(self, name, w):
        """N - N^2/2 with N = w - 1 nilpotent."""
        return np.stack([w[..., 0], w[..., 1], w[..., 2] - w[..., 0] * w[..., 1] / 2], -1)


# ---- the integrator ---------------------------------------------------------------------------------------


def discrete_lagrangian(group, tau, inertia, g0, g1, h):
    """(h/2) <I xi, xi> with h xi = tau^-1(g0^-1 g1), over leading axes."""
    xi = group.untau(tau, group.mul(group.inv(g0), g1)) / h
    return h / 2 * np.einsum("...i,ij,...j", xi, inertia, xi)


def before(group, tau, inertia, g0, g1, h):
    """Left-trivialised p- at g0, by central differences."""
    return -discrete_lagrangian(group, tau, inertia, group.mul(g0, group.stencil), g1, h) @ WEIGHTS / SPREAD


def after(group, tau, inertia, g0, g1, h):
    """Left-trivialised p+ at g1, likewise."""
    return discrete_lagrangian(group, tau, inertia, g0, group.mul(g1, group.stencil), h) @ WEIGHTS / SPREAD


def flight(group, tau, inertia, p, h):
    """xi with p-(e, tau(h xi)) = p; Newton from I^-1 p down to rounding."""
    miss = lambda xi: before(group, tau, inertia, group.identity, group.tau(tau, h * xi), h) - p
    xi, last, d = np.linalg.solve(inertia, p), np.inf, 1e-4
    for i in range(40):
        if i < 2:
            slopes = [(miss(xi + d * e) - miss(xi - d * e)) / (2 * d) for e in np.eye(group.dim)]
            jacobian = np.stack(slopes, -1)
        correction = np.linalg.solve(jacobian, miss(xi))
        if i >= 3 and np.abs(correction).max() >= last:
            return xi
        xi, last = xi - correction, np.abs(correction).max()
    raise ArithmeticError("Newton did not settle")


def reflection(a, inertia):
    """(1 - 2 Q^T), Q = I^-1 a^T (a I^-1 a^T)^-1 a."""
    z = np.linalg.solve(inertia, a.T)
    return np.eye(len(inertia)) - 2 * (z @ np.linalg.solve(a @ z, a)).T


def acceleration(group, inertia, a, g, xi):
    """(xi', lam) with I xi' = ad_xi^T I xi + a^T lam and a xi' + a' xi = 0, a' along g exp(s xi)."""
    rows = a(g)
    change = np.tensordot(WEIGHTS, [a(group.mul(g, group.tau("exp", s * SPREAD * xi))) for s in OFFSETS], 1)
    matrix = np.block([[inertia, -rows.T], [rows, np.zeros((len(rows), len(rows)))]])
    right = np.concatenate([group.ad(xi).T @ inertia @ xi, -change @ xi / SPREAD])
    return tuple(np.split(np.linalg.solve(matrix, right), [group.dim]))


def lie_gni_start(group, inertia, a, g0, xi0, h, mode="half-kick"):
    """p-_0 = I xi0 + (h/2) a^T lam ("half-kick") or I xi0 ("momentum")."""
    kick = {"half-kick": h / 2, "momentum": 0.0}[mode]
    return inertia @ xi0 + kick * a(g0).T @ acceleration(group, inertia, a, g0, xi0)[1]


def lie_gni_run(group, tau, inertia, a, g0, p0, h, steps, metric=None):
    """List of (g_k, p-_k, p+_k, xi_k), k = 0 .. steps; xi_k leads from g_k to g_{k+1}, p+_0 is p-_0 reflected.

    `metric` is the inertia of the projector, by default (and by right) the kinetic one.
    """
    mirror = lambda g: reflection(a(g), inertia if metric is None else metric)
    g, p_minus, p_plus, rows = g0, p0, mirror(g0) @ p0, []
    for _ in range(steps + 1):
        xi = flight(group, tau, inertia, p_minus, h)
        rows.append((g, p_minus, p_plus, xi))
        w = group.tau(tau, h * xi)
        p_plus = after(group, tau, inertia, group.identity, w, h)
        g = group.mul(g, w)
        p_minus = mirror(g) @ p_plus
    return rows
