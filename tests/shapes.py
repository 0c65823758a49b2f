"""In the tests, what public functions return has the shapes that their signatures say, dimensions of one name alike."""

import functools
import inspect
import typing

from beartype.door import is_bearable
from jaxtyping import AbstractArray, jaxtyped

import dalembert as da

PARTS = (da, da.diagnostics, da.reduction)


def has_shapes(hint) -> bool:
    """Whether a hint has the shape of an array somewhere."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(has_shapes(part) for part in typing.get_args(hint))


def shaped_fields(kind) -> dict:
    """The fields of a class whose shapes are known, with their hints."""
    return {name: hint for name, hint in typing.get_type_hints(kind).items() if has_shapes(hint)}


def wrong_field(record, fields) -> str | None:
    """The first field that has another shape than its hint says, or whose dimensions differ from an earlier one's."""
    with jaxtyped("context"):
        for name, hint in fields.items():
            value = getattr(record, name)
            values = value.values() if isinstance(value, dict) else [value]
            inner = typing.get_args(hint)[1] if isinstance(value, dict) else hint
            for each in values:
                if not is_bearable(each, inner):
                    return f"{type(record).__name__}.{name} is {inner}, got {type(each)} {getattr(each, 'shape', '')}"
    return None


def checked(function, hint):
    """The function, whose result is looked at."""
    fields = shaped_fields(hint) if isinstance(hint, type) and hasattr(hint, "_fields") else {}

    @functools.wraps(function)
    def call(*arguments, **named):
        result = function(*arguments, **named)
        if fields:
            found = wrong_field(result, fields)
            assert found is None, f"{function.__name__}: {found}"
        else:
            with jaxtyped("context"):
                assert is_bearable(result, hint), f"{function.__name__} returns {hint}, got {result!r}"
        return result

    return call


def install() -> list[str]:
    """Looks at every trajectory and at every public function whose result has shapes; their names."""
    fields = shaped_fields(da.Trajectory)

    def look(self):
        found = wrong_field(self, fields)
        assert found is None, found

    da.Trajectory.__check_init__ = look
    names, made = ["Trajectory"], {}
    for part in PARTS:
        for name in part.__all__:
            function = getattr(part, name)
            if not inspect.isfunction(function):
                continue
            hint = inspect.get_annotations(function).get("return")
            record = isinstance(hint, type) and hasattr(hint, "_fields") and shaped_fields(hint)
            if record or has_shapes(hint):
                setattr(part, name, made.setdefault(function, checked(function, hint)))
                names.append(name)
    return names
