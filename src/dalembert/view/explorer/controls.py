"""The controls with which the reader chooses what to run."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from dalembert.model import nearest_velocity, wrong
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
    text_of,
)

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
            allowed = gui.add_button("Make v0 allowed", hint="project it onto the constraint", color="gray")
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
        """Replaces the typed velocity by the nearest one that satisfies the constraint."""
        request = checked(self.request(), self.kinds)
        system = built(request, self.kinds)
        q0, v0 = (jnp.array(numbers(x, n)) for x, n in ((request.q0, "q0"), (request.v0, "v0")))
        if len(q0) != system.dimension or len(v0) != system.velocity_dimension:
            raise ValueError(
                f"{system.label} takes {system.dimension} numbers in q0 and {system.velocity_dimension} in v0"
            )
        self.v0.value = text_of(nearest_velocity(system.at(0.0), q0, v0))


def sentence_of(error: Exception) -> str:
    """An error as a sentence: the message of a ValueError, and any other error with the name of its class."""
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
