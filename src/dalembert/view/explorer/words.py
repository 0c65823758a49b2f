"""What the page says, as HTML; whatever a user typed stays text."""

import html
from collections.abc import Mapping, Sequence

from dalembert.view.explorer.answer import Said

RED, AMBER, GREY = ("#c0392b", "#fdf0ee"), ("#e0a100", "#fff8e6"), ("#cfd6e2", "transparent")


def _told(words: str, colours: tuple[str, str]) -> str:
    style = (
        f"margin:3px 10px;padding:6px 10px;border-left:3px solid {colours[0]};background:{colours[1]};"
        "border-radius:3px;font-size:12.5px;line-height:1.45;overflow-wrap:anywhere"
    )
    return f'<div role="status" style="{style}">{words}</div>'


def message(problems: Sequence[str]) -> str:
    """What went wrong."""
    return "".join(_told(html.escape(x), RED) for x in problems)


def verdict_table(said: Sequence[Said], colours: Mapping[str, str]) -> str:
    """One block a run; what should not be trusted stands out."""
    found = []
    for label in dict.fromkeys(x.label for x in said):
        own = sorted((x for x in said if x.label == label), key=lambda x: not x.bad)
        name = f'<b style="color:{colours.get(label, "#333")}">{html.escape(label)}</b>'
        lines = "<br>".join(("&#9888; " if x.bad else "") + html.escape(x.text) for x in own)
        found.append(_told(f"{name}<br>{lines}", AMBER if own[0].bad else GREY))
    return "".join(found)
