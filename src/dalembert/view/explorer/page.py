"""The page: controls, charts and playback around the stage."""

import html
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.methods import METHODS
from dalembert.model import nearest_velocity
from dalembert.view.page import page as player_page
from dalembert.view.explorer.answer import Answer, Said, answer, second_thoughts
from dalembert.view.explorer.charts import chart
from dalembert.view.explorer.request import Request, built, choices, numbers, script, text_of
from dalembert.view.explorer.stage import Stage
from dalembert.view.film import film
from dalembert.view.panels import Panel

NONE, SLOTS = "none", 4
# Spellings beside the plain names that the lists offer.
MORE = ("frame@4", "frame:gonzalez", "dd:average", "gni:restart=20", "lie-gni:restart=20")
SPEEDS = ("0.1", "0.25", "0.5", "1", "2", "5", "20")
RATE = 30
"""Pictures a second; at speed 1 each is one step further."""


def methods_for(system: Any) -> list[str]:
    """The methods that the lists offer: those for groups, or those for coordinates."""
    known = [*METHODS, *MORE]
    grouped = ("lie-gni", "dla-variational", "reference")
    if system.group is not None:
        return [name for name in known if name.partition(":")[0] in grouped]
    return [name for name in known if not name.startswith("lie-gni")]


def _told(words: str, colour: str, ground: str) -> str:
    style = (
        f"margin:2px 10px;padding:7px 10px;border-left:3px solid {colour};background:{ground};"
        "border-radius:3px;font-size:12.5px;line-height:1.4;overflow-wrap:anywhere"
    )
    return f'<div role="status" style="{style}">{words}</div>'


def message(problems: Sequence[str]) -> str:
    """What went wrong, as safe HTML."""
    return "".join(_told(html.escape(x), "#c0392b", "#fdf0ee") for x in problems)


def verdict_table(said: Sequence[Said], colours: Mapping[str, str]) -> str:
    """The sentences about each run, as safe HTML."""
    found = []
    for x in said:
        name = f'<b style="color:{colours.get(x.label, "#333")}">{html.escape(x.label)}</b>'
        ground = ("#e0a100", "#fff8e6") if x.bad else ("#cfd6e2", "transparent")
        found.append(_told(f"{name} {html.escape(x.text)}", *ground))
    return "".join(found)


class Page:
    """The explorer on a viser server: every change of a control makes a request, the latest one is answered."""

    def __init__(self, server: Any, kinds: Mapping[str, Any], first: Request):
        self.server, self.kinds, self.wanted = server, kinds, first
        self.stage, self.answer = Stage(server), None
        self.playing, self.now = False, 0.0
        self.due, self.lock, self.stopped = threading.Event(), threading.RLock(), threading.Event()
        self.filling = False
        self._theme()
        self._controls(first)
        self._charts()
        self.due.set()
        self.threads = [threading.Thread(target=x, daemon=True) for x in (self._work, self._clock)]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Ends the page's threads; the server goes on."""
        self.stopped.set()
        self.due.set()

    def _theme(self) -> None:
        gui = self.server.gui
        gui.configure_theme(show_logo=False, show_share_button=False, brand_color=(0, 114, 178))
        gui.set_panel_label("dalembert")
        gui.main_panel.dock_right()
        gui.main_panel.set_width(350)
        self.server.scene.set_up_direction("+z")
        self.server.scene.configure_default_lights(cast_shadow=False)

    def _controls(self, first: Request) -> None:
        gui = self.server.gui
        self.status = gui.add_html("")
        with gui.add_folder("Play"):
            self.play = gui.add_button("Play", icon="player-play")
            self.slider = gui.add_slider("time", 0.0, 1.0, 0.001, 0.0)
            self.speed = gui.add_dropdown("speed", SPEEDS, initial_value="1", hint="at speed 1 thirty steps a second")
        with gui.add_folder("System"):
            self.system = gui.add_dropdown("system", tuple(self.kinds), initial_value=first.system)
            self.box = gui.add_folder("parameters")
            self.start = gui.add_dropdown("start", ("default",), initial_value="default")
            self.q0 = gui.add_text("q0", first.q0, hint="the configuration, with commas")
            self.v0 = gui.add_text("v0", first.v0, hint="the velocity, with commas")
            allowed = gui.add_button("Make v0 allowed", hint="project it onto the constraint")
        with gui.add_folder("Methods"):
            self.methods = [gui.add_dropdown(f"method {i + 1}", (NONE,), initial_value=NONE) for i in range(SLOTS)]
            self.h = gui.add_number("h", first.h, step=0.001, hint="the step size")
            self.steps = gui.add_number("steps", first.steps, step=1000)
        with gui.add_folder("Take it along"):
            export = gui.add_button("Export HTML", icon="download")
            copy = gui.add_button("Copy as Python", icon="copy")
        self.parameters: dict[str, Any] = {}
        self._fill(first)
        self.system.on_update(lambda _: self._choose())
        self.start.on_update(lambda _: self._restart())
        for control in (self.q0, self.v0, self.h, self.steps, *self.methods):
            control.on_update(lambda _: self.changed())
        allowed.on_click(lambda _: self._allow())
        self.play.on_click(lambda _: self._toggle())
        self.slider.on_update(self._scrub)
        export.on_click(self._export)
        copy.on_click(self._copy)

    def _charts(self) -> None:
        panel = self.server.gui.add_panel()
        self.tab = panel.add_tab("What is kept")
        panel.dock_left()
        panel.set_width(370)
        self.figures: list[Any] = []
        with self.tab:
            self.verdicts = self.server.gui.add_html("")

    def _fill(self, request: Request) -> None:
        """Controls for the request's system, with its values."""
        self.filling = True
        try:
            kind, values = self.kinds[request.system], dict(request.parameters)
            for control in self.parameters.values():
                control.remove()
            self.parameters = {}
            with self.box:
                for choice in choices(kind):
                    value = values.get(choice.name, choice.default)
                    self.parameters[choice.name] = control = self._control(choice, value)
                    control.on_update(lambda _: self.changed())
            self.box.visible = bool(self.parameters)
            system = built(request, self.kinds)
            self.start.options = tuple(system.starts()) or ("own",)
            self.q0.value, self.v0.value = request.q0, request.v0
            for i, control in enumerate(self.methods):
                value = request.methods[i] if i < len(request.methods) else NONE
                control.options = tuple(dict.fromkeys((NONE, *methods_for(system), value)))
                control.value = value
            self.h.value, self.steps.value = request.h, request.steps
        finally:
            self.filling = False

    def _control(self, choice: Any, value: Any) -> Any:
        gui = self.server.gui
        if choice.is_number:
            low, high = min(choice.low, value), max(choice.high, value)
            return gui.add_slider(choice.name, low, high, (high - low) / 200, value)
        if choice.choices:
            return gui.add_dropdown(choice.name, choice.choices, initial_value=value)
        return gui.add_text(choice.name, value)

    def _choose(self) -> None:
        """Another system: its own start, step and parameters; methods stay where they fit."""
        if not self.filling:
            with self.lock:
                self._fill(first_request(self.system.value, self.kinds, self._chosen()))
            self.changed()

    def _chosen(self) -> list[str]:
        return [x.value for x in self.methods if x.value != NONE]

    def _restart(self) -> None:
        """The start state of the chosen name."""
        if self.filling:
            return
        try:
            q0, v0 = built(self._request(), self.kinds).start(self.start.value)
        except (ValueError, TypeError) as error:
            self.status.content = message([str(error)])
            return
        self.filling = True
        self.q0.value, self.v0.value = text_of(q0), text_of(v0)
        self.filling = False
        self.changed()

    def _allow(self) -> None:
        """The velocity nearest to the one typed that satisfies the constraint."""
        try:
            system = built(self._request(), self.kinds)
            q0, v0 = (np.array(numbers(x.value, n)) for x, n in ((self.q0, "q0"), (self.v0, "v0")))
            if len(q0) != system.dimension or len(v0) != system.velocity_dimension:
                raise ValueError(
                    f"{system.label} takes {system.dimension} numbers in q0 and {system.velocity_dimension} in v0"
                )
            self.v0.value = text_of(nearest_velocity(system.at(0.0), jnp.asarray(q0), jnp.asarray(v0)))
        except (ValueError, TypeError) as error:
            self.status.content = message([str(error)])

    def _request(self) -> Request:
        values = {name: control.value for name, control in self.parameters.items()}
        steps = self.steps.value
        return Request(
            self.system.value,
            tuple(values.items()),
            self.q0.value,
            self.v0.value,
            tuple(self._chosen()),
            float(self.h.value),
            int(steps) if np.isfinite(steps) else 0,
        )

    def changed(self) -> None:
        """Asks for an answer to what the controls say now."""
        if not self.filling:
            with self.lock:
                self.wanted = self._request()
            self.due.set()

    def _work(self) -> None:
        """Answers the latest request, again and again."""
        while not self.stopped.is_set():
            self.due.wait()
            self.due.clear()
            if self.stopped.is_set():
                return
            with self.lock:
                request = self.wanted
            try:
                self._show(answer(request, self.kinds))
            except Exception as error:  # the page must live on, whatever a user's system does
                self.status.content = message([f"{type(error).__name__}: {error}"])

    def _show(self, found: Answer) -> None:
        self.status.content = message(found.problems)
        if found.film is None:
            return
        fresh = self.answer is None or self.answer.request.system != found.request.system
        with self.lock:
            self.answer = found
            times = found.film.times
            self.stage.play(found.film, turn_camera=fresh)
            self.now = float(times[0]) if fresh else float(np.clip(self.now, times[0], times[-1]))
            self.stage.show(int(np.searchsorted(times, self.now)))
            self._span(float(times[0]), float(times[-1]))
        self._draw(found.panels)
        self._verdicts(found, found.verdicts)
        if not self.due.is_set():
            more, charts = second_thoughts(found)
            if more:
                self._verdicts(found, [*found.verdicts, *more])
                self._draw([*found.panels, *charts])

    def _verdicts(self, found: Answer, said: Sequence[Said]) -> None:
        colours = {copy.label: copy.colour for copy in found.film.copies} if found.film else {}
        self.verdicts.content = verdict_table(sorted(said, key=lambda x: not x.bad), colours)

    def _span(self, low: float, high: float) -> None:
        self.filling = True
        step = max(high - low, 1e-9) / 2000
        self.slider.min, self.slider.max, self.slider.step = low, max(high, low + 1e-9), step
        self.slider.value = self.now
        self.filling = False

    def _draw(self, panels: Sequence[Panel]) -> None:
        made = [chart(panel, legend=i == 0) for i, panel in enumerate(panels)]
        for handle in self.figures[len(made) :]:
            handle.remove()
        self.figures = self.figures[: len(made)]
        for i, figure in enumerate(made):
            if i < len(self.figures):
                self.figures[i].figure = figure
            else:
                with self.tab:
                    self.figures.append(self.server.gui.add_plotly(figure, aspect=0.6))

    def _toggle(self) -> None:
        self.playing = not self.playing
        self.play.label = "Pause" if self.playing else "Play"
        self.play.icon = "player-pause" if self.playing else "player-play"

    def _scrub(self, event: Any) -> None:
        """The reader moved the slider; the clock moves it too, and then no client is named."""
        if event.client is None or self.filling:
            return
        with self.lock:
            self.now = float(self.slider.value)
            self._place()

    def _place(self) -> None:
        if self.answer is not None and self.answer.film is not None:
            times = self.answer.film.times
            self.stage.show(int(np.clip(np.searchsorted(times, self.now), 0, len(times) - 1)))

    def _clock(self) -> None:
        """Moves the scene while it plays."""
        last = time.monotonic()
        while not self.stopped.wait(1 / RATE):
            now, passed = time.monotonic(), time.monotonic() - last
            last = now
            if not self.playing or self.answer is None or self.answer.film is None:
                continue
            with self.lock:
                times = self.answer.film.times
                self.now += passed * RATE * float(self.speed.value) * abs(self.answer.request.h)
                if self.now > times[-1]:
                    self.now = float(times[0])
                self._place()
                self.slider.value = float(self.now)

    def _export(self, event: Any) -> None:
        if self.answer is None or self.answer.film is None:
            return
        found = self.answer
        text = player_page(film(found.runs), found.panels)
        event.client.send_file_download(
            f"{found.request.system.rpartition(':')[2]}.html", text.encode(), save_immediately=True
        )

    def _copy(self, event: Any) -> None:
        if self.answer is None:
            return
        text = html.escape(script(self.answer.request, self.kinds), quote=True)
        with event.client.gui.add_modal("The same in Python", size="xl") as modal:
            event.client.gui.add_html(
                f'<pre style="font-size:12px;overflow:auto;padding:10px;background:#f5f7fa">{text}</pre>'
                '<button style="padding:6px 14px;cursor:pointer" onclick="navigator.clipboard.writeText('
                "this.previousElementSibling.textContent).then(() => this.textContent = 'Copied')\">Copy</button>"
            )
            close = event.client.gui.add_button("Close")
            close.on_click(lambda _: modal.close())


def start_of(system: Any, name: str | None) -> tuple[Any, Any]:
    """The system's own start; where it has none the zeros, with some velocity that the constraint allows."""
    if system.starts() or name is not None:
        return system.start(name)
    q0 = np.zeros(system.dimension) if system.group is None else np.asarray(system.group.identity())
    return q0, nearest_velocity(system.at(0.0), jnp.asarray(q0), jnp.ones(system.velocity_dimension))


def first_request(
    name: str, kinds: Mapping[str, Any], methods: Sequence[str] = (), steps: int = 10_000, **given: Any
) -> Request:
    """What a system is first shown with: its own start and step; of the methods those that fit it."""
    kind = kinds[name]
    parameters = {c.name: c.default for c in choices(kind)} | given.get("parameters", {})
    system = kind if not isinstance(kind, type) else kind(**parameters)
    known = methods_for(system)
    usual = ["frame", "leapfrog"] if system.group is None else ["lie-gni"]
    fitting = [x for x in methods if x in known] or usual
    q0, v0 = start_of(system, given.get("start"))
    h = given.get("h") or system.step or 0.1
    return Request(
        name, tuple(parameters.items()), text_of(q0), text_of(v0), tuple(fitting[:SLOTS]), h, steps
    )
