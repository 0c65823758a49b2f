"""The frame discrete gradient for a car with any number of trailers, in plain NumPy, with two unknowns per step.

The equations are those of `transcription.frame`. Here D is spanned by the two columns of the recursion from each axle
to the next, so that projections need no large matrices; the Lagrangian has no potential. Bodies have length 1, mass 1
and moment of inertia 0.2, and the hitch is on the axle.
"""

import numpy as np

TURNING = 0.2


def moving(q):
    """dP_i/dq for the middle of every axle, shape (bodies, 2, n), by walking from the first to the last."""
    n = len(q)
    rows = np.zeros((n - 2, 2, n), q.dtype)
    now = np.zeros((2, n), q.dtype)
    now[0, 0] = now[1, 1] = 1
    for i, theta in enumerate(q[2:]):
        if i:
            now = now.copy()
            now[:, 2 + i] += np.sin(theta), -np.cos(theta)  # P_i = P_(i-1) - e_i
        rows[i] = now
    return rows


def metric(q):
    rows = moving(q).reshape(-1, len(q))
    return rows.T @ rows + np.diag([0.0, 0.0, *[TURNING] * (len(q) - 2)])


def spanning(q):
    """Two columns that span D: the first axle's speed 1 and turning rate 0, and the other way round."""
    columns = np.zeros((len(q), 2), q.dtype)
    columns[0, 0], columns[1, 0], columns[2, 1] = np.cos(q[2]), np.sin(q[2]), 1
    speed = 1.0 + 0 * q[2]
    for i in range(1, len(q) - 2):
        d = q[1 + i] - q[2 + i]
        columns[2 + i, 0] = speed * np.sin(d)
        speed = speed * np.cos(d)
    return columns


def field(basis, q):
    """P(q) basis N^(-1/2), the frame of D at q that extends a basis; analytic in q."""
    m, columns = metric(q), spanning(q)
    x = columns @ np.linalg.solve(columns.T @ m @ columns, columns.T @ m @ basis)
    gram, root = x.T @ m @ x, np.eye(2)
    for _ in range(40):
        root = root + root @ (np.eye(2) - gram @ root @ root) / 2
    return x @ root


def structure(basis, q):
    """c[d, a, b] = g([X_a, X_b], X_d) at q, with derivatives along the columns by the complex step."""
    b, tiny = field(basis, q), 1e-40
    along = np.stack([field(basis, q + 1j * tiny * b[:, a]).imag / tiny for a in range(2)])  # a, i, b
    bracket = along - along.transpose(2, 1, 0)
    return np.einsum("id,ij,ajb->dab", b, metric(q), bracket)


def step(q0, v0, h):
    """The state after one step."""
    columns = spanning(q0)
    fixed = columns @ np.linalg.inv(np.linalg.cholesky(columns.T @ metric(q0) @ columns)).T

    def middle(w):
        q = q0 + h / 2 * v0
        for _ in range(60):
            new = q0 + h / 2 * field(fixed, q) @ w
            if np.max(np.abs(new - q)) < 1e-15:
                break
            q = new
        return new

    def residual(w):
        q = middle(w)
        basis = field(fixed, q)
        w0 = field(basis, q0).T @ metric(q0) @ v0
        turning = np.einsum("dab,d->ba", structure(basis, q), w)
        return 2 * (w - w0) - h * turning @ w, basis, q, w0

    w = fixed.T @ metric(q0) @ v0
    for _ in range(8):
        value = residual(w)[0]
        slope = np.stack([(residual(w + d)[0] - residual(w - d)[0]) / 2e-6 for d in 1e-6 * np.eye(2)], axis=1)
        change = np.linalg.solve(slope, value)
        w = w - change
        if np.max(np.abs(change)) < 1e-15:
            break
    _, basis, q, w0 = residual(w)
    q1 = 2 * q - q0
    return q1, field(basis, q1) @ (2 * w - w0)


def run(q, v, h, steps):
    """The state after some steps."""
    for _ in range(steps):
        q, v = step(q, v, h)
    return q, v
