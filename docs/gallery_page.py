"""Makes the pictures, animations and cards of docs/gallery.md; they lie in docs/_static/gallery, which git ignores.

They are made when the page is built, or by `python docs/gallery_page.py`, and again only after a change of their
sources. Pictures and animations are of the runs of docs/pictures.py.
"""

import html
import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = HERE / "_static" / "gallery"
SOURCE = HERE.parent / "src" / "dalembert"
# The animation shows at least so many steps, the picture those of docs/pictures.py alone.
FRAMES = 240
PICTURE, ANIMATION = 40_000, 250_000
"""Bytes at most."""
SIZE, DPI = (5.2, 3.6), 120
# The moving energy of a run counts as kept below this relative change: the method's rounding in some hundred steps.
KEPT = 1e-10


def newest_source() -> float:
    """When the sources of the gallery were last changed."""
    files = [Path(__file__), HERE / "pictures.py", SOURCE / "model" / "scene.py"]
    for folder in ("zoo", "view"):
        files += [
            path for path in (SOURCE / folder).rglob("*") if path.suffix in (".py", ".js", ".css", ".html")
        ]
    return max(path.stat().st_mtime for path in files)


def conserved(system: Any, run: Any) -> list[str]:
    """What the exact motion keeps: energies, the integrals that the system names, momenta of constant sections."""
    import jax.numpy as jnp
    import numpy as np

    from dalembert.numerics import is_syntactically_constant

    kept = [] if system.timed or system.affine or system.defines("forces") else ["energy"]
    if system.affine and not system.timed:
        energy = run.moving_energy()
        kept += ["moving energy"] * bool(np.max(np.abs(energy - energy[0])) < KEPT * np.max(np.abs(energy)))
    kept += system.integrals()
    q = jnp.zeros(system.dimension)
    for name, section in system.sections().items():
        along = (lambda q, x=section: x(q[0], q)) if system.timed else section
        kept += [f"momentum ({name})"] * is_syntactically_constant(along, q)
    return kept


def caption(name: str, run: Any, chosen: Any) -> str:
    """Which run is shown, in a line."""
    changed = [f"{key} = {value:g}" for key, value in (chosen.parameters or {}).items()]
    own = ["another start than its own"] if chosen.start else []
    return ", ".join([f"by {run.method.cli_name}, h = {float(run.h):.3g}", *changed, *own])


def card(name: str, folder: Path) -> dict[str, Any]:
    """Writes picture and animation of a system, from one run, and returns what its card says."""
    import matplotlib.pyplot as plt
    from pictures import RUNS, small

    import dalembert as da
    from dalembert.cli.names import parameters_of
    from dalembert.view.stills import scene

    chosen = RUNS[name]
    run = chosen.of(name, steps=max(chosen.steps, FRAMES))
    figure = plt.figure(figsize=SIZE)
    ax = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    scene(run, t=(0.0, float(run.t[chosen.steps])), times=chosen.times, view=chosen.view, ax=ax)
    for place in ("left", "center", "right"):
        ax.set_title("", loc=place)
    small(figure, folder / f"{name}.png", PICTURE, DPI)
    path = folder / f"{name}.html"
    da.animate(run, path, frames=FRAMES)
    if path.stat().st_size > ANIMATION:
        raise ValueError(
            f"{path.name} has {path.stat().st_size} bytes, more than {ANIMATION}: take fewer frames"
        )
    return {
        "words": " ".join((type(run.system).__doc__ or "").partition("\n\n")[0].split()),
        "parameters": [x.replace("=", " = ", 1) for x in parameters_of(type(run.system))],
        "starts": list(run.system.starts()),
        "conserved": conserved(run.system, run),
        "shown": caption(name, run, chosen),
    }


def make(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """The cards by the names of the systems; what is older than its sources is made anew."""
    known = folder / "cards.json"
    if known.exists() and known.stat().st_mtime > newest_source():
        return json.loads(known.read_text())
    from pictures import RUNS

    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    cards = {name: card(name, folder) for name in RUNS}
    known.write_text(json.dumps(cards, indent=1))
    return cards


def marked(text: str) -> str:
    """A docstring's sentences as HTML: `words` become code, [key] leads to the references."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
    return re.sub(r"\[([a-z]+\d{4})\]", r'<a href="references.html">[\1]</a>', text)


def listed(items: list[str], otherwise: str) -> str:
    """Items in a line."""
    return ", ".join(f"<span>{html.escape(x, quote=False)}</span>" for x in items) or f"<em>{otherwise}</em>"


def as_html(name: str, told: dict[str, Any]) -> str:
    """One card."""
    file = f"_static/gallery/{name}"
    starts = f"<dt>starts</dt><dd>{listed(told['starts'], '')}</dd>" if len(told["starts"]) > 1 else ""
    return f"""<article class="zoo-card" id="{name.lower()}">
<a class="zoo-picture" href="{file}.html" target="_blank" title="play {name}">
<img src="{file}.png" alt="{name} at several times, earlier ones paler" loading="lazy">
<span>&#9654;&#xFE0E; play</span></a>
<div class="zoo-words">
<h2><a href="api/zoo.html#dalembert.zoo.{name}">{name}</a></h2>
<p>{marked(told["words"])}</p>
<dl>
<dt>conserved</dt><dd>{listed(told["conserved"], "nothing that it names")}</dd>
<dt>parameters</dt><dd>{listed(told["parameters"], "none")}</dd>
{starts}<dt>shown</dt><dd>{html.escape(told["shown"])}</dd>
</dl>
<pre>dalembert run {name}
dalembert explore {name}</pre>
</div>
</article>"""


def page() -> str:
    """All cards as HTML."""
    cards = "\n".join(as_html(name, told) for name, told in make().items())
    return f'<link rel="stylesheet" href="_static/gallery.css">\n<div class="zoo">\n{cards}\n</div>'


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    print(f"{len(make())} systems in {FOLDER}")
