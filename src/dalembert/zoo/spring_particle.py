"""The nonholonomic particle in a spring potential."""

from dalembert.zoo.harmonic_cvt import HarmonicCVT


class SpringParticle(HarmonicCVT):
    """The harmonic CVT without the spring on x1: V = (x2^2 + xi^2)/2 [modin2020]; x1 is cyclic."""

    def potential(self, q):
        return 0.5 * (q[1] ** 2 + q[2] ** 2)
