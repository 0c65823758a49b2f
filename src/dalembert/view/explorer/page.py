"""The page: the controls with which the reader chooses what to run, charts, and playback around the stage."""

import html
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.model import nearest_start, wrong
from dalembert.view.animation import page as player_page
from dalembert.view.explorer.answers import Answer, Said, answer, second_thoughts
from dalembert.view.explorer.request import (
    SLOTS,
    Choice,
    Request,
    built,
    checked,
    choices,
    first_request,
    methods_for,
    numbers,
    script,
    text_of,
)
from dalembert.view.explorer.stage import Stage, room
from dalembert.view.style import Panel

NONE = "none"


class Controls:
    """The controls for system, parameters, start, methods, step and length.

    `changed()` is called when the reader changes one, and `complain(text)` when a button fails.
    """

    def __init__(
        self,
        gui: Any,
        kinds: Mapping[str, Any],
        first: Request,
        changed: Callable[[], None],
        complain: Callable[[str], None],
    ):
        self.gui, self.kinds, self._changed, self._complain = gui, kinds, changed, complain
        self.filling = False
        self.parameters: dict[str, Any] = {}
        with gui.add_folder("System"):
            self.system = gui.add_dropdown("system", tuple(kinds), initial_value=first.system)
            self.box = gui.add_folder("parameters")
            self.start = gui.add_dropdown("start", ("default",), initial_value="default")
            self.q0 = gui.add_text("q0", first.q0, hint="the configuration, with commas")
            self.v0 = gui.add_text("v0", first.v0, hint="the velocity, with commas")
            allowed = gui.add_button(
                "Make it allowed", hint="the nearest q0 and v0 that satisfy the constraints", color="gray"
            )
        with gui.add_folder("Methods"):
            names = [f"method {i + 1}" for i in range(SLOTS)]
            self.methods = [gui.add_dropdown(name, (NONE,), initial_value=NONE) for name in names]
            self.h = gui.add_number("h", first.h, step=0.001, hint="the step size")
            self.steps = gui.add_number("steps", first.steps, step=1000)
        self.fill(first)
        self.system.on_update(lambda _: self._try(self._choose))
        self.start.on_update(lambda _: self._try(self._restart))
        for control in (self.q0, self.v0, self.h, self.steps, *self.methods):
            control.on_update(lambda _: self._touched())
        allowed.on_click(lambda _: self._try(self._allow))

    def request(self) -> Request:
        """The current values of the controls, as they were typed; `checked` decides whether they make sense."""
        return Request(
            self.system.value,
            tuple((name, control.value) for name, control in self.parameters.items()),
            self.q0.value,
            self.v0.value,
            tuple(self._chosen()),
            self.h.value,
            self.steps.value,
        )

    def fill(self, request: Request) -> None:
        """Fills the controls for the request's system with its values."""
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
                    control.on_update(lambda _: self._touched())
            self.box.visible = bool(self.parameters)
            system = built(request, self.kinds)
            names = tuple(system.starts()) or ("own",)
            self.start.options = names
            here = [x for x in system.starts() if text_of(system.start(x)[1]) == request.v0]
            self.start.value = here[0] if here else names[0]
            self.q0.value, self.v0.value = request.q0, request.v0
            for i, control in enumerate(self.methods):
                value = request.methods[i] if i < len(request.methods) else NONE
                control.options = tuple(dict.fromkeys((NONE, *methods_for(system), value)))
                control.value = value
            self.h.value, self.steps.value = request.h, request.steps
        finally:
            self.filling = False

    def _control(self, choice: Choice, value: Any) -> Any:
        if choice.is_number:
            low, high = min(choice.low, value), max(choice.high, value)
            return self.gui.add_slider(choice.name, low, high, (high - low) / 200, value)
        if choice.choices:
            return self.gui.add_dropdown(choice.name, choice.choices, initial_value=value)
        return self.gui.add_text(choice.name, value)

    def _try(self, do: Callable[[], None]) -> None:
        """Runs the action of a control, and turns any exception, even from the user's system, into a sentence."""
        try:
            do()
        except Exception as error:
            self._complain(sentence_of(error))

    def _touched(self) -> None:
        if not self.filling:
            self._changed()

    def _chosen(self) -> list[str]:
        return [x.value for x in self.methods if x.value != NONE]

    def _choose(self) -> None:
        """Switches to another system with its own start, step and parameters; methods that fit it stay."""
        if not self.filling:
            if self.system.value not in self.kinds:
                raise wrong("system", self.system.value, self.kinds)
            self.fill(first_request(self.system.value, self.kinds, self._chosen()))
            self._changed()

    def _restart(self) -> None:
        """Fills in the start state with the chosen name."""
        if self.filling:
            return
        q0, v0 = built(checked(self.request(), self.kinds), self.kinds).start(self.start.value)
        self.filling = True
        try:
            self.q0.value, self.v0.value = text_of(q0), text_of(v0)
        finally:
            self.filling = False
        self._changed()

    def _allow(self) -> None:
        """Replaces the typed start by the nearest one that satisfies the constraints."""
        request = checked(self.request(), self.kinds)
        system = built(request, self.kinds)
        q0, v0 = (jnp.array(numbers(x, n)) for x, n in ((request.q0, "q0"), (request.v0, "v0")))
        if len(q0) != system.dimension or len(v0) != system.velocity_dimension:
            raise ValueError(
                f"{system.label} takes {system.dimension} numbers in q0 and {system.velocity_dimension} in v0"
            )
        q, v = nearest_start(system.at(0.0), q0, v0)
        if not jnp.all(jnp.isfinite(q)):
            raise ValueError(f"no configuration near q0 satisfies the position constraints of {system.label}")
        if jnp.any(q != q0):
            self.q0.value = text_of(q)
        self.v0.value = text_of(v)


def sentence_of(error: Exception) -> str:
    """An error as a sentence: the message of a ValueError, and any other error with the name of its class."""
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


RED, AMBER, GREY = ("#c0392b", "#fdf0ee"), ("#e0a100", "#fff8e6"), ("#cfd6e2", "transparent")


def _told(words: str, colours: tuple[str, str]) -> str:
    style = (
        f"margin:3px 10px;padding:6px 10px;border-left:3px solid {colours[0]};background:{colours[1]};"
        "border-radius:3px;font-size:12.5px;line-height:1.45;overflow-wrap:anywhere"
    )
    return f'<div role="status" style="{style}">{words}</div>'


def message(problems: Sequence[str]) -> str:
    """The problems as HTML."""
    return "".join(_told(html.escape(x), RED) for x in problems)


def verdict_table(said: Sequence[Said], colours: Mapping[str, str]) -> str:
    """One block of HTML per run, in which runs that should not be trusted stand out."""
    found = []
    for label in dict.fromkeys(x.label for x in said):
        own = sorted((x for x in said if x.label == label), key=lambda x: not x.bad)
        name = f'<b style="color:{colours.get(label, "#333")}">{html.escape(label)}</b>'
        lines = "<br>".join(("&#9888; " if x.bad else "") + html.escape(x.text) for x in own)
        found.append(_told(f"{name}<br>{lines}", AMBER if own[0].bad else GREY))
    return "".join(found)


DASHES = {"-": "solid", "--": "dash", ":": "dot"}


def chart(panel: Panel, legend: bool) -> Any:
    """The chart of one panel, with a log axis and one colour per method."""
    import plotly.graph_objects as go

    # Plain dictionaries, because plotly's own classes take ten times as long.
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": curve.t.tolist(),
            "y": curve.y.tolist(),
            "name": curve.label,
            "showlegend": legend,
            "line": {"color": curve.colour, "width": 1.6, "dash": DASHES[curve.dash]},
        }
        for curve in panel.curves
    ]
    ends = np.log10(
        [f(curve.y) for curve in panel.curves for f in (np.min, np.max) if curve.y.size] or [1e-16]
    )
    low, high = np.floor(ends.min()), np.ceil(ends.max())
    decades = float(np.ceil(max(high - low, 1) / 6))
    axis = {"gridcolor": "#e6e9ef", "zeroline": False, "tickfont": {"size": 10}, "automargin": True}
    layout = {
        "title": {"text": panel.title, "font": {"size": 13}, "x": 0.02, "y": 0.97},
        "margin": {"l": 46, "r": 8, "t": 30, "b": 30},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "xaxis": {**axis, "title": {"text": "t", "standoff": 4, "font": {"size": 11}}},
        "yaxis": {
            **axis,
            "type": "log",
            "exponentformat": "power",
            "dtick": decades,
            "range": [low, high + 0.3],
        },
        "legend": {"orientation": "h", "y": 1.14, "x": 1, "xanchor": "right", "font": {"size": 10}},
    }
    return go.Figure({"data": data, "layout": layout}, skip_invalid=False)


SPEEDS = ("0.1", "0.25", "0.5", "1", "2", "5", "20")
RATE = 30
"""The number of pictures per second; at speed 1 each shows the next step."""


class Page:
    """The explorer on a viser server. Every change of a control makes a request, and the latest one is answered."""

    def __init__(self, server: Any, kinds: Mapping[str, Any], first: Request):
        self.server, self.kinds, self.wanted = server, kinds, first
        self.stage, self.answer = Stage(server), None
        self.playing, self.now = False, 0.0
        self.due, self.lock, self.stopped = threading.Event(), threading.RLock(), threading.Event()
        self.filling, self.busy = False, True
        self._theme()
        self._controls(first)
        self._charts()
        self.due.set()
        self.threads = [threading.Thread(target=x, daemon=True) for x in (self._work, self._clock)]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads of the page after they finish their current work; the server keeps running."""
        self.stopped.set()
        self.due.set()
        for thread in self.threads:
            thread.join()

    @property
    def settled(self) -> bool:
        """Whether the page shows the answer to the latest request."""
        return not (self.due.is_set() or self.busy)

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
            self.follow = gui.add_checkbox("follow", False, hint="keep the first run in the middle")
            self.speed = gui.add_dropdown(
                "speed", SPEEDS, initial_value="1", hint="at speed 1 thirty steps a second"
            )
        self.controls = Controls(gui, self.kinds, first, self.changed, self._complain)
        with gui.add_folder("Take it along"):
            export = gui.add_button("Export HTML", icon="download")
            copy = gui.add_button("Copy as Python", icon="copy")
        self.play.on_click(lambda _: self._toggle())
        self.slider.on_update(self._scrub)
        self.follow.on_update(lambda _: self.seek(self.now, tell=False))
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

    def changed(self) -> None:
        """Requests an answer to the current values of the controls."""
        with self.lock:
            self.wanted = self.controls.request()
        self.due.set()

    def _complain(self, text: str) -> None:
        self.status.content = message([text])

    def _work(self) -> None:
        """Answers the latest request, in a loop."""
        while not self.stopped.is_set():
            self.busy = False
            self.due.wait()
            self.busy = True
            self.due.clear()
            if self.stopped.is_set():
                return
            with self.lock:
                request = self.wanted
            try:
                self._show(answer(request, self.kinds))
            except Exception as error:  # the page must survive whatever a user's system raises
                self._complain(sentence_of(error))

    def _show(self, found: Answer) -> None:
        self.status.content = message(found.problems)
        if found.film is None or found.near is None:
            return
        fresh = self.answer is None or self.answer.request.system != found.request.system
        with self.lock:
            times = found.film.times
            self.stage.play(found.film, found.near, fresh)
            self.answer = found
            if fresh:  # follow a body that travels far, which would otherwise be a dot
                self.follow.value = bool(found.film.extent > 1.5 * room(found.near)[1])
            self.now = float(times[0]) if fresh else float(np.clip(self.now, times[0], times[-1]))
            self._place()
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

    def seek(self, t: float, tell: bool = True) -> None:
        """Shows the time t, or the nearest time that the run has; `tell` also moves the slider there."""
        if self.answer is None or self.answer.film is None or t != t:
            return
        with self.lock:
            times = self.answer.film.times
            self.now = float(np.clip(t, times[0], times[-1]))
            self._place()
            if tell:
                self.slider.value = self.now

    def _scrub(self, event: Any) -> None:
        """Handles a slider moved by the reader. The clock also moves it, and then the event names no client."""
        if event.client is None or self.filling:
            return
        self.seek(float(self.slider.value), tell=False)

    def _place(self) -> None:
        if self.answer is not None and self.answer.film is not None:
            times = self.answer.film.times
            k = int(np.clip(np.searchsorted(times, self.now), 0, len(times) - 1))
            self.stage.show(k, self.follow.value)

    def _clock(self) -> None:
        """Moves the scene while it plays. After an error it reports the error and pauses, and can be played again."""
        last = time.monotonic()
        while not self.stopped.wait(1 / RATE):
            now = time.monotonic()
            passed, last = now - last, now
            try:
                self._tick(passed)
            except Exception as error:
                self._complain(sentence_of(error))
                if self.playing:
                    self._toggle()

    def _tick(self, passed: float) -> None:
        if not self.playing or self.answer is None or self.answer.film is None:
            return
        # The page may have sent any value.
        speed = float(self.speed.value) if self.speed.value in SPEEDS else 1.0
        with self.lock:
            times = self.answer.film.times
            t = self.now + passed * RATE * speed * self.answer.request.h
            self.seek(t if t <= times[-1] else float(times[0]))

    def _export(self, event: Any) -> None:
        if self.answer is None or self.answer.near is None:
            return
        found = self.answer
        text = player_page(self.answer.near, found.panels, note=", ".join(found.request.methods))
        event.client.send_file_download(
            f"{found.request.system.rpartition(':')[2]}.html", text.encode(), save_immediately=True
        )

    def _copy(self, event: Any) -> None:
        if self.answer is None:
            return
        try:
            text = html.escape(script(self.answer.request, self.kinds), quote=True)
        except (ValueError, TypeError) as error:
            self._complain(sentence_of(error))
            return
        with event.client.gui.add_modal("The same in Python") as modal:
            event.client.gui.add_html(
                f'<pre style="font-size:12px;overflow:auto;padding:10px;background:#f5f7fa">{text}</pre>'
                '<button style="padding:6px 14px;cursor:pointer" onclick="navigator.clipboard.writeText('
                "this.previousElementSibling.textContent).then(() => this.textContent = 'Copied')\">Copy</button>"
            )
            close = event.client.gui.add_button("Close")
            close.on_click(lambda _: modal.close())
