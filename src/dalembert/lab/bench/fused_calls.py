"""Section tag: measures whether XLA still compiles a tagged call as one kernel."""

import jax
import jax.numpy as jnp

from dalembert.lab.bench.tables import Section, Settings, Table, compared, interleaved

TAG = {"xla_cpu_small_call": "true", "inlineable": "false"}
CLEARLY = 1.3
SCALARS = 144
"""The number of loop variables. At eight bytes each, they exceed the 1024 bytes below which XLA makes one kernel by
itself."""


def _loop(values, steps):
    def body(state):
        i, x = state
        new = [0.5 * jnp.sin(x[k]) + 0.25 * x[k - 1] for k in range(len(x))]
        small = jnp.stack(new[:9]).reshape(3, 3)
        turned = small @ small[0]
        new[0] += 1e-3 * turned[0]
        new[1] += 1e-3 * jnp.sum(turned)
        new[2] += 1e-3 * jnp.max(turned)
        return i + 1, tuple(new)

    return jax.lax.while_loop(lambda state: state[0] < steps, body, (0, values))[1]


def one_kernel_tag(settings: Settings) -> Section:
    """Section tag."""
    section = Section(
        "tag",
        f"A while loop over {SCALARS} scalars with a small matrix product, in plain jit and inside an inner "
        "jit that is tagged to be compiled as one kernel. XLA honours the tag where the plain loop takes "
        "clearly longer.",
    )
    try:
        from jax.experimental.xla_metadata import set_xla_metadata
    except ImportError:
        section.skipped = "this JAX has no jax.experimental.xla_metadata"
        return section
    if jax.default_backend() != "cpu":
        section.skipped = "the tag is one of XLA's CPU backend"
        return section
    inner = jax.jit(_loop)

    def tagged(values, steps):
        with set_xla_metadata(**TAG):
            return inner(values, steps)

    values = tuple(jnp.asarray(0.1 * k) for k in range(SCALARS))
    steps = 1_000 if settings.quick else 5_000
    plain, one_kernel = jax.jit(_loop), jax.jit(tagged)
    calls = {
        "ours": lambda: jax.block_until_ready(one_kernel(values, steps)),
        "theirs": lambda: jax.block_until_ready(plain(values, steps)),
    }
    times = interleaved(calls, settings.repeats)
    row = compared(times["ours"], times["theirs"], steps * 1e-6)
    gain = 1 / row["ratio"]
    row |= {"gain": gain, "honoured": "yes" if gain > CLEARLY else "no", "jax": jax.__version__}
    columns = [
        ("jax", "JAX", ""),
        ("ours", "tagged, us a turn", ".2f"),
        ("theirs", "plain, us a turn", ".2f"),
    ]
    columns += [
        ("gain", "plain / tagged", ".1f"),
        ("spread", "spread", ".0%"),
        ("honoured", "tag honoured", ""),
    ]
    section.tables = [Table("The one-kernel tag", columns, [row])]
    return section
