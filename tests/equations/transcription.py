"""The integrators, written down once more: the unreduced equations in plain NumPy.

This module is the second road to the numbers of the library and shares no code with it.  Every method is a
function with its equation in the docstring; implicit equations are handed, as they stand, to a Newton
iteration that runs until it stagnates at rounding.  Speed does not matter here.

Notation: L(q, v) = v . M(q) v / 2 - V(q), constraint A(q) v = 0, and the sign of the multiplier is fixed by

    d/dt dL/dv - dL/dq = A(q)^T lam.

A problem is any object with the attributes M (constant mass matrix or None), metric(q), V(q), gradV(q), A(q),
q0, v0 and h, whose functions accept complex arguments.  The step functions map (q0, u0) to (q1, u1, lam),
where u is the velocity that the method itself carries along; it need not satisfy the constraint (leap-frog,
discrete derivative).

Sources: K. Modin and O. Verdier (discrete Lagrange-d'Alembert, nonholonomic leap-frog, discrete derivative);
S. Ferraro, D. Iglesias and D. Martin de Diego (the leap-frog as a geometric nonholonomic integrator);
O. Gonzalez, T. Itoh and K. Abe, and the average vector field (discrete gradients); Hamel's equations (frame
method); D. Cohen and E. Hairer (collocation); M. Suzuki (composition).
"""

import numpy as np

TINY = 1e-30  # complex step
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
NODES, WEIGHTS = (1 + NODES) / 2, WEIGHTS / 2  # Gauss-Legendre on [0, 1]


# ---- tools ------------------------------------------------------------------------------------------------


def complex_step(f, z):
    """Derivative of an analytic f at the real z, to rounding; the last index is the direction."""
    columns = []
    for i in range(z.size):
        shifted = z.astype(complex)
        shifted[i] += 1j * TINY
        columns.append(np.asarray(f(shifted)).imag / TINY)
    return np.stack(columns, axis=-1)


def central_difference(f, z, step=1e-6):
    """Derivative of f at z, to about 1e-10; enough for a Newton iteration that is run to stagnation."""
    columns = []
    for i in range(z.size):
        d = np.zeros(z.size)
        d[i] = step
        columns.append((f(z + d) - f(z - d)) / (2 * step))
    return np.stack(columns, axis=-1)


def newton(residual, z, derivative=complex_step, fresh=2):
    """Solve residual(z) = 0 by Newton corrections until they no longer shrink, that is, down to rounding.

    The Jacobian is taken at the guess and after the first correction, and kept from then on; with fresh = 1 at the
    guess alone, where it costs more than the few corrections it saves.
    """
    last = np.inf
    for i in range(60):
        if i < fresh:
            jacobian = derivative(residual, z)
        correction = np.linalg.solve(jacobian, -residual(z))
        z = z + correction
        size = np.max(np.abs(correction)) / max(1.0, np.max(np.abs(z)))
        if size < 1e-12 and size >= last / 2:
            return z
        last = size
    raise ArithmeticError("the Newton iteration does not converge")


def constant_mass(problem):
    """The constant mass matrix, which all methods except the frame method need."""
    if problem.M is None:
        raise ValueError(f"{problem.name}: this method is written for a constant mass matrix")
    return problem.M


def projector(problem, q):
    """Projector on ker A(q), orthogonal for the kinetic metric: P = 1 - M^-1 A^T (A M^-1 A^T)^-1 A."""
    A = problem.A(q)
    Z = np.linalg.solve(problem.metric(q), A.T)
    return np.eye(q.size) - Z @ np.linalg.solve(A @ Z, A)


def energy(problem, q, v):
    """H = v . M(q) v / 2 + V(q)."""
    return v @ problem.metric(q) @ v / 2 + problem.V(q)


# ---- the exact equations ----------------------------------------------------------------------------------


def continuous_acceleration(problem, q, v):
    """Acceleration and multiplier of the nonholonomic equations, for any metric:

    M a + M' v - grad_q(v . M(q) v)/2 = -grad V + A^T lam,      A a + A' v = 0,      ' along v.
    """
    M, A = problem.metric(q), problem.A(q)
    dM, dA = complex_step(problem.metric, q), complex_step(problem.A, q)
    inertial = np.einsum("ijk,j,k->i", dM, v, v) - np.einsum("jki,j,k->i", dM, v, v) / 2
    n, m = q.size, A.shape[0]
    matrix = np.block([[M, -A.T], [A, np.zeros((m, m))]])
    right = np.concatenate([-problem.gradV(q) - inertial, -np.einsum("ajk,j,k->a", dA, v, v)])
    solution = np.linalg.solve(matrix, right)
    return solution[:n], solution[n:]


def ode(problem, T, rtol=1e-13):
    """The exact solution (q, v) at time T, by an explicit Runge-Kutta method of order 8 at high accuracy."""
    from scipy.integrate import solve_ivp

    n = problem.q0.size

    def field(t, z):
        return np.concatenate([z[n:], continuous_acceleration(problem, z[:n], z[n:])[0]])

    start = np.concatenate([problem.q0, problem.v0])
    end = solve_ivp(field, (0.0, T), start, method="DOP853", rtol=rtol, atol=rtol / 10).y[:, -1]
    return end[:n], end[n:]


# ---- discrete gradients -----------------------------------------------------------------------------------


def gonzalez_gradient(problem, q0, q1):
    """Gonzalez, with the metric M; qb = (q0 + q1)/2 and dq = q1 - q0:

    dg = grad V(qb) + [V(q1) - V(q0) - grad V(qb) . dq] M dq / (dq . M dq).
    """
    dq = q1 - q0
    middle = problem.gradV((q0 + q1) / 2)
    square = dq @ problem.M @ dq
    if square == 0:
        return middle
    return middle + (problem.V(q1) - problem.V(q0) - middle @ dq) * (problem.M @ dq) / square


def average_gradient(problem, q0, q1):
    """dg = integral over s in [0, 1] of grad V(q0 + s (q1 - q0)), by a Gauss rule exact to rounding."""
    return problem.gradV(q0[:, None] + np.outer(q1 - q0, NODES)) @ WEIGHTS


def increment_gradient(problem, q0, q1):
    """Coordinate increments of Itoh and Abe, one coordinate after the other going over from q0 to q1:

    dg_i = [V(.., q1_i, q0_{i+1}, ..) - V(.., q1_{i-1}, q0_i, ..)] / (q1_i - q0_i).

    The quotient is evaluated as the average of dV/dq_i on that edge, which is the same number and does not
    lose digits as q1_i - q0_i -> 0.
    """
    dg = []
    corner = np.array(q0, dtype=np.result_type(q0, q1))
    for i in range(q0.size):
        start, end = corner.copy(), corner.copy()
        end[i] = q1[i]
        dg.append(average_gradient(problem, start, end)[i])
        corner = end
    return np.array(dg)


def itoh_abe_gradient(problem, q0, q1):
    """The symmetric form: the mean of the increments from q0 to q1 and of those from q1 to q0."""
    return (increment_gradient(problem, q0, q1) + increment_gradient(problem, q1, q0)) / 2


DISCRETE_GRADIENTS = {
    "gonzalez": gonzalez_gradient,
    "average": average_gradient,
    "itoh-abe": itoh_abe_gradient,
}


# ---- discrete Lagrange-d'Alembert -------------------------------------------------------------------------


def solve_step(equations, q0, u0, m, h):
    """Solve equations(q1, u1, lam) = 0 for all unknowns at once, from the guess (q0 + h u0, u0, 0)."""
    n = q0.size

    def residual(z):
        return np.concatenate(equations(z[:n], z[n : 2 * n], z[2 * n :]))

    z = newton(residual, np.concatenate([q0 + h * u0, u0, np.zeros(m)]))
    return z[:n], z[n : 2 * n], z[2 * n :]


def dla(problem, q0, v0, h, alpha):
    """Discrete Lagrange-d'Alembert with parameter alpha, Modin and Verdier:

    qm = q0 + (1 - alpha) h v0,                     q1 = qm + alpha h v1,
    M v1 = M v0 - alpha h grad V(q0) - (1 - alpha) h grad V(q1) + h A(qm)^T lam,
    A(q1) v1 = 0.
    """
    M = constant_mass(problem)
    qm = q0 + (1 - alpha) * h * v0
    g0, Am = problem.gradV(q0), problem.A(qm)

    def equations(q1, v1, lam):
        return (
            q1 - qm - alpha * h * v1,
            M @ (v1 - v0) + alpha * h * g0 + (1 - alpha) * h * problem.gradV(q1) - h * Am.T @ lam,
            problem.A(q1) @ v1,
        )

    return solve_step(equations, q0, v0, Am.shape[0], h)


def dla01(problem, q0, v0, h):
    """Discrete Lagrange-d'Alembert (0, 1), the symmetric pair, Modin and Verdier:

    qm = q0 + (h/2) v0,                             q1 = qm + (h/2) v1,
    M (v1 - v0) = -h grad V(qm) + h A(qm)^T lam,    A(q1) v1 = 0.
    """
    M = constant_mass(problem)
    qm = q0 + h / 2 * v0
    gm, Am = problem.gradV(qm), problem.A(qm)

    def equations(q1, v1, lam):
        return (
            q1 - qm - h / 2 * v1,
            M @ (v1 - v0) + h * gm - h * Am.T @ lam,
            problem.A(q1) @ v1,
        )

    return solve_step(equations, q0, v0, Am.shape[0], h)


# ---- nonholonomic leap-frog -------------------------------------------------------------------------------


def leapfrog(problem, q0, u0, h):
    """Nonholonomic leap-frog; the state is (q_k, p^-_k), carried here as u = M^-1 p^-:

    M vh = p^-_0 - (h/2) grad V(q0),    q1 = q0 + h vh,    p^+_1 = M vh - (h/2) grad V(q1),
    p^-_1 = p^+_1 + h A(q1)^T lam    with    A(q1) M^-1 (p^-_1 + p^+_1) / 2 = 0.
    """
    M = constant_mass(problem)
    vh = u0 - h / 2 * np.linalg.solve(M, problem.gradV(q0))
    q1 = q0 + h * vh
    u_plus = vh - h / 2 * np.linalg.solve(M, problem.gradV(q1))
    A = problem.A(q1)
    Z = np.linalg.solve(M, A.T)
    lam = np.linalg.solve(A @ Z, -2 * (A @ u_plus)) / h
    return q1, u_plus + h * Z @ lam, lam


def half_kick(problem, h):
    """Start of the leap-frog with half the reaction, lam exact: p^-_0 = M v0 + (h/2) A(q0)^T lam.

    Returned as M^-1 p^-_0.
    """
    lam = continuous_acceleration(problem, problem.q0, problem.v0)[1]
    return problem.v0 + h / 2 * np.linalg.solve(constant_mass(problem), problem.A(problem.q0).T @ lam)


# ---- discrete derivative ----------------------------------------------------------------------------------


def discrete_derivative(problem, q0, u0, h, gradient):
    """Discrete derivative method (Gonzalez; Modin and Verdier), with qb = (q0 + q1)/2 and ub = (u0 + u1)/2:

    q1 = q0 + h ub,    M (u1 - u0) = h (-dg(q0, q1) + A(qb)^T lam),    A(qb) ub = 0.
    """
    M = constant_mass(problem)

    def equations(q1, u1, lam):
        A, ub = problem.A((q0 + q1) / 2), (u0 + u1) / 2
        return (
            q1 - q0 - h * ub,
            M @ (u1 - u0) + h * gradient(problem, q0, q1) - h * A.T @ lam,
            A @ ub,
        )

    return solve_step(equations, q0, u0, problem.A(q0).shape[0], h)


# ---- frame discrete gradient ------------------------------------------------------------------------------


def inverse_square_root(N):
    """N^(-1/2) of a matrix not far from 1, by Newton-Schulz: Y <- Y + Y (1 - N Y^2)/2 (analytic in N).

    Each correction squares the error of Y and multiplies that of its derivative by the error of Y.
    """
    one = np.eye(N.shape[0])
    Y = one
    for _ in range(60):
        error = one - N @ Y @ Y
        Y = Y + Y @ error / 2
        if np.max(np.abs(error)) < 1e-13:
            return Y
    raise ArithmeticError("the inverse square root does not converge")


def frame_field(problem, basis, q):
    """A frame of D at q, orthonormal for M(q): B(q) = P(q) basis N^(-1/2), N = (P basis)^T M(q) (P basis)."""
    X = projector(problem, q) @ basis
    return X @ inverse_square_root(X.T @ problem.metric(q) @ X)


def orthonormal_basis(problem, q):
    """Some basis of ker A(q), orthonormal for M(q)."""
    A = problem.A(q)
    kernel = np.linalg.svd(A)[2][A.shape[0] :].T
    return kernel @ np.linalg.inv(np.linalg.cholesky(kernel.T @ problem.metric(q) @ kernel)).T


def structure_functions(problem, basis, q):
    """c[d, a, b] = g([X_a, X_b], X_d) at q, X_a the columns of the frame field, [X, Y] = (DY) X - (DX) Y."""
    B = frame_field(problem, basis, q)
    dB = complex_step(lambda z: frame_field(problem, basis, z), q)
    along = np.einsum("ibk,ka->iab", dB, B)  # derivative of X_b along X_a
    bracket = along - along.transpose(0, 2, 1)
    return np.einsum("id,ij,jab->dab", B, problem.metric(q), bracket)


def frame(problem, q0, v0, h):
    """Frame discrete gradient, with qb = (q0 + q1)/2 and wb = (w0 + w1)/2:

    q1 - q0 = h B(qb) wb,       w1 - w0 = h (S(qb, wb) wb - B(qb)^T dg(q0, q1)),
    S_ba(q, w) = sum_d c^d_ab(q) w_d,       w_k = B(q_k)^T M(q_k) v_k,       v_k = B(q_k) w_k.

    dg is the average gradient.  B is the frame field that extends an orthonormal basis of D at qb by
    projection; which basis is immaterial, and so is the choice of the constraint forms.  To have a smooth
    equation, that basis is itself the extension to qb of one fixed basis at q0.  There is no multiplier.
    """
    n = q0.size
    fixed = orthonormal_basis(problem, q0)

    def velocities(q1):
        """The basis at qb, and w0 in its extension."""
        basis = frame_field(problem, fixed, (q0 + q1) / 2)
        return basis, frame_field(problem, basis, q0).T @ problem.metric(q0) @ v0

    def residual(z):
        q1, w1 = z[:n], z[n:]
        basis, w0 = velocities(q1)
        wb = (w0 + w1) / 2
        S = np.einsum("dab,d->ba", structure_functions(problem, basis, (q0 + q1) / 2), wb)
        return np.concatenate(
            [
                q1 - q0 - h * basis @ wb,
                w1 - w0 - h * (S @ wb - basis.T @ average_gradient(problem, q0, q1)),
            ]
        )

    guess = q0 + h * v0
    z = newton(residual, np.concatenate([guess, velocities(guess)[1]]), central_difference, fresh=1)
    q1, w1 = z[:n], z[n:]
    basis, _ = velocities(q1)
    return q1, frame_field(problem, basis, q1) @ w1, None


# ---- collocation in a frame ---------------------------------------------------------------------------------


def lagrange(nodes, x):
    """The Lagrange polynomials of some nodes at the points x; rows are points."""
    columns = [
        np.prod([(x - b) / (a - b) for j, b in enumerate(nodes) if j != i], axis=0) * np.ones_like(x)
        for i, a in enumerate(nodes)
    ]
    return np.stack(columns, axis=-1)


def frame_collocation(stages):
    """Energy-preserving collocation (Cohen and Hairer) of y = (q, w), H = |w|^2/2 + V(q), in one frame field a step.

    y' = J(y) grad H,  J = [[0, B], [-B^T, S]],  becomes at Gauss's nodes c_i with weights b_i, y(0) = y_0,
        y'(c_i) = h J(y(c_i)) (1/b_i) int_0^1 l_i(x) grad H(y(x)) dx,        y_1 = y(1),
    for a polynomial y of degree s.  B extends an orthonormal basis at (q_0 + q_1)/2 to all q; w_0 and v_1 are read in
    it at q_0 and q_1.  The integrals are taken by a Gauss rule exact to rounding, also that of w.
    """
    nodes, weights = np.polynomial.legendre.leggauss(stages)
    nodes, weights = (1 + nodes) / 2, weights / 2

    def integrals(x):
        """Integrals of the Lagrange polynomials from 0 to each of the points x."""
        points, factors = np.polynomial.legendre.leggauss(stages)
        return np.stack(
            [xi / 2 * factors @ lagrange(nodes, xi * (1 + points) / 2) for xi in np.atleast_1d(x)]
        )

    fine, within = integrals(NODES), integrals(nodes)
    averages = (WEIGHTS[:, None] * lagrange(nodes, NODES) / weights).T

    def step(problem, q0, v0, h):
        n = q0.size
        fixed = orthonormal_basis(problem, q0)
        r = fixed.shape[1]

        def split(z):
            """q' and w' at the nodes, the basis in the middle and w_0 in its extension."""
            dq, dw = z[: stages * n].reshape(stages, n), z[stages * n :].reshape(stages, r)
            basis = frame_field(problem, fixed, q0 + weights @ dq / 2)
            return dq, dw, basis, frame_field(problem, basis, q0).T @ problem.metric(q0) @ v0

        def residual(z):
            dq, dw, basis, w0 = split(z)
            slopes = averages @ problem.gradV((q0 + fine @ dq).T).T
            means = averages @ (w0 + fine @ dw)
            found_q, found_w = [], []
            for i in range(stages):
                q, w = q0 + within[i] @ dq, w0 + within[i] @ dw
                B = frame_field(problem, basis, q)
                S = np.einsum("dab,d->ba", structure_functions(problem, basis, q), w)
                found_q.append(h * B @ means[i])
                found_w.append(h * (S @ means[i] - B.T @ slopes[i]))
            return z - np.concatenate([*found_q, *found_w])

        guess = np.concatenate([np.tile(h * v0, stages), np.zeros(stages * r)])
        dq, dw, basis, w0 = split(newton(residual, guess, central_difference, fresh=1))
        q1 = q0 + weights @ dq
        return q1, frame_field(problem, basis, q1) @ (w0 + weights @ dw), None

    return step


# ---- compositions and runs --------------------------------------------------------------------------------


def suzuki(step):
    """Order 4 from a symmetric step of order 2: g h, g h, (1 - 4 g) h, g h, g h with g = 1/(4 - 4^(1/3))."""
    g = 1 / (4 - 4 ** (1 / 3))

    def composed(problem, q, v, h):
        for fraction in (g, g, 1 - 4 * g, g, g):
            q, v, _ = step(problem, q, v, fraction * h)
        return q, v, None

    return composed


def method_step(method):
    """The step function of a method given by name."""
    if method.startswith("frame:gauss="):
        return frame_collocation(int(method.partition("=")[2]))
    name, _, parameter = method.partition(":")
    if name == "dla":
        alpha = float(parameter)
        return lambda problem, q, v, h: dla(problem, q, v, h, alpha)
    if name == "dd":
        gradient = DISCRETE_GRADIENTS[parameter]
        return lambda problem, q, v, h: discrete_derivative(problem, q, v, h, gradient)
    return {
        "dla01": dla01,
        "leapfrog-momentum": leapfrog,
        "leapfrog-half-kick": leapfrog,
        "frame": frame,
        "frame@4": suzuki(frame),
        "dla01@4": suzuki(dla01),
    }[method]


def run(problem, method, steps):
    """Integrate a problem for a number of steps; a dict with the arrays

    q       (steps+1, n)  configurations,
    v       (steps+1, n)  velocities in ker A(q): the projection of v_full,
    v_full  (steps+1, n)  the method's own velocities (leap-frog: M^-1 p^-; discrete derivative: v),
    lam     (steps, m)    multiplier of each step (leap-frog: at its end); NaN where the method has none.

    The methods are "dla:<alpha>", "dla01", "leapfrog-momentum", "leapfrog-half-kick", "dd:gonzalez",
    "dd:average", "dd:itoh-abe", "frame", "frame:gauss=<stages>", "frame@4" and "dla01@4".
    """
    step = method_step(method)
    q = np.array(problem.q0, dtype=float)
    u = half_kick(problem, problem.h) if method == "leapfrog-half-kick" else np.array(problem.v0, dtype=float)
    qs, us, lams = [q], [u], []
    for _ in range(steps):
        q, u, lam = step(problem, q, u, problem.h)
        qs.append(q)
        us.append(u)
        lams.append(np.full(problem.A(q).shape[0], np.nan) if lam is None else lam)
    if method.startswith(("leapfrog", "dd")):
        vs = [projector(problem, q) @ u for q, u in zip(qs, us, strict=True)]
    else:
        vs = us
    lam = np.array(lams).reshape(steps, problem.A(q).shape[0])
    return {"q": np.array(qs), "v": np.array(vs), "v_full": np.array(us), "lam": lam}
