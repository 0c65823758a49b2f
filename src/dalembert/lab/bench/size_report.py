"""What the page of benchmarks says about large systems, and its figure."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dalembert.lab.bench.tables import Section, Table
from dalembert.view.style import OTHERS, axes, log_ticks, method_style, title

FIRST_CALLS = {4: 1.5, 8: 2.5, 13: 4.0, 23: 8.0, 43: 15.0}
"""The seconds that a first call may take, by the number of coordinates up to which it may."""
SECOND_PROCESS = 0.3
FIRST_POWER, STEP_POWER = 1.5, 3.0
FRAME_C, LEAPFROG_C = 2.0, 1.5
GRADIENT, GAIN = 6.0, 1.6


def table_with(section: Section, key: str) -> Table | None:
    """The table of the section that has this column."""
    return next((t for t in section.tables if any(k == key for k, *_ in t.columns)), None)


def _rows(section: Section, key: str) -> list[dict[str, Any]]:
    table = table_with(section, key)
    return table.rows if table is not None else []


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def verdict(
    rows: Sequence[dict[str, Any]], key: str, bound: float, what: str, unit: str = "", least: bool = False
) -> Iterator[str]:
    """Whether every value keeps the bound, with the range of values, and each case that does not, with its figure.

    Rows without the value count as failures if they say why they ended, as a process that ran out of time does.
    """
    if not rows:
        return
    known = [r for r in rows if r.get(key) is not None]
    missing = [r for r in rows if r.get(key) is None]
    bad = [r for r in known if (r[key] < bound if least else r[key] > bound)]
    good = len(known) - len(bad)
    word = (
        "Holds" if good == len(rows) else "Does not hold" if not good else f"Holds for {good} of {len(rows)}"
    )
    text = f"{word}: {what}."
    unit = f" {unit}" if unit else ""
    if known:
        values = [r[key] for r in known]
        low, high = _number(min(values)), _number(max(values))
        text += f" Measured: {low}{unit}." if low == high else f" Measured: {low} to {high}{unit}."
    if bad:
        listed = ", ".join(f"`{r['case']}` with {_number(r[key])}{unit}" for r in bad)
        text += f" {'Below' if least else 'Above'} the bound: {listed}."
    if missing:
        text += (
            " No figure: " + ", ".join(f"`{r['case']}` ({r.get('ended') or 'none'})" for r in missing) + "."
        )
    yield text


def _first_calls(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    below = 0
    for n, bound in FIRST_CALLS.items():
        some = [r for r in rows if below < r["n"] <= n]
        what = f"a first call with {below + 1} to {n} coordinates takes at most {bound:g} s"
        yield from verdict(
            [r | {"case": f"{r['case']}, n = {r['n']}"} for r in some], "first", bound, what, "s"
        )
        below = n
    every = [r | {"case": f"{r['case']}, n = {r['n']}"} for r in rows]
    what = f"the first call of a second process takes at most {SECOND_PROCESS:g} s"
    yield from verdict(every, "second", SECOND_PROCESS, what, "s")


def _powers(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for key, bound, what in (
        ("first_power", FIRST_POWER, "the first call"),
        ("step_power", STEP_POWER, "the time of a step"),
    ):
        fitted = [{"ended": "too few sizes", **r} for r in rows]
        yield from verdict(fitted, key, bound, f"{what} grows at most like the power {bound:g} of n")


def _peers(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Whether ours is quicker than each peer, per unit of time and to the first result."""
    for key, words in (("lead", "per unit of simulated time"), ("first_lead", "to the first result")):
        found = [r | {"ended": "none of ours"} for r in rows if r.get("unit") is not None]
        what = f"at an error no larger than the peer's, ours is quicker {words}"
        yield from verdict(found, key, 1.0, what, "times", least=True)
    slow = [r for r in rows if str(r.get("ended", "")).startswith("not within")]
    if slow:
        yield "Did not finish: " + ", ".join(f"`{r['case']}` ({r['ended']})" for r in slow) + "."


def claims(section: Section) -> Iterator[str]:
    """One sentence per bound, with the numbers that decide it."""
    yield from _first_calls(_rows(section, "step"))
    yield from _powers(_rows(section, "first_power"))
    cars = _rows(section, "walk")
    largest = [r for r in cars if r["n"] == max(x["n"] for x in cars)]
    for row in largest:
        what = f"a step of frame with n = {row['n']} takes at most {FRAME_C:g} times as long as C with LAPACK"
        yield from verdict([row], "ratio", FRAME_C, what, "times")
        yield (
            f"C that walks along the chain takes {row['walk']:.3g} us for that step, and the library "
            f"{row['walk_ratio']:.3g} times as long."
        )
    lattices = [t.rows for t in section.tables if "leap-frog" in t.title]
    what = f"a step of leap-frog takes at most {LEAPFROG_C:g} times as long as C with LAPACK"
    yield from verdict(lattices[0] if lattices else [], "ratio", LEAPFROG_C, what, "times")
    yield from _peers(_rows(section, "lead"))
    gradients = _rows(section, "gradient")
    what = f"a gradient of a long run of a chain costs at most {GRADIENT:g} runs"
    yield from verdict(gradients, "gradient", GRADIENT, what, "runs")
    for row in gradients:
        if row.get("memory0") is not None and row.get("memory1") is not None:
            yield (
                f"The gradient of {row['case']} needs {row['memory0']:.1f} MB of memory, and {row['memory1']:.1f} MB "
                "for ten times as many steps."
            )
    many = _rows(section, "gain")
    decided = [r for r in many if r.get("decides")]
    if len(decided) < len(many):
        yield (
            f"Not decided: how much an ensemble of chains gains from more cores. The cores were busy: a control "
            f"without the library sped up by only {many[0]['control']:.2f}."
        )
    what = f"an ensemble of chains is at least {GAIN:g} times faster on all cores than on one thread"
    yield from verdict(decided, "gain", GAIN, what, "times", least=True)


def figure(section: Section, path: Path) -> bool:
    """First call and step against n, one line per method, for each system; whether there was something to draw."""
    rows = [r for r in _rows(section, "step") if r.get("step")]
    if not rows:
        return False
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    methods = list(dict.fromkeys(r["method"] for r in rows))
    systems = list(dict.fromkeys(r["system"] for r in rows))
    fig, grid = plt.subplots(
        len(systems), 2, figsize=(9.5, 0.9 + 2.9 * len(systems)), layout="constrained", squeeze=False,
        sharex=True, sharey="col",
    )  # fmt: skip
    styles, unknown = {}, iter(OTHERS)
    for method in methods:
        style = method_style(method)
        styles[method] = {**style, "color": style["color"] or next(unknown, "0.5")}
    for line, system in zip(grid, systems, strict=True):
        for ax, key, words in zip(line, ("first", "step"), ("first call, s", "one step, us"), strict=True):
            axes(ax)
            ax.set_xscale("log")
            ax.set_yscale("log")
            if key == "first":
                ax.plot([*FIRST_CALLS], [*FIRST_CALLS.values()], color="0.6", lw=1.2, ls=(0, (1, 2)))
            for method in methods:
                some = [r for r in rows if (r["method"], r["system"]) == (method, system)]
                x, y = [r["n"] for r in some], [r[key] for r in some]
                ax.plot(x, y, marker="o", ms=4, lw=1.4, **styles[method])
            title(ax, f"{system}: {words}")
    for ax in grid.ravel():
        log_ticks(ax)
        ax.xaxis.set_major_locator(FixedLocator([5, 10, 20, 40]))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
    sizes = [r["n"] for r in rows]
    for ax in grid[-1]:
        ax.set_xlim(min(sizes) / 1.15, max(sizes) * 1.15)
        ax.set_xlabel("number of coordinates n")
    lines = [Line2D([], [], lw=1.6, **styles[m]) for m in methods]
    lines.append(Line2D([], [], color="0.6", lw=1.2, ls=(0, (1, 2)), label="bound"))
    fig.legend(handles=lines, loc="outside right upper", frameon=False, fontsize="small")
    fig.savefig(path, dpi=130)
    plt.close(fig)
    return True
