"""Docstrings here are plain sentences; this makes reStructuredText of them, so that every sign is shown as it stands.

`words` become code, [key] a citation, indented lines a block, and a line such as "Memory: ..." begins a paragraph.
On the pages, too, [key] is a citation.
"""

import re

KEY = r"\[([a-z]+\d{4})\]"
PARTS = re.compile(r"(`[^`]+`|\[[a-z]+\d{4}\])")
LABEL = re.compile(r"(Equations|Memory|Erratum|Parameters|Arguments):(?= |$)")


def _piece(text):
    if re.fullmatch(r"`.+`", text):
        return f"``{text[1:-1]}``\\ "
    if re.fullmatch(r"\[.+\]", text):
        return f":cite:`{text[1:-1]}`\\ "
    return re.sub(r"([\\*_|`<>])", r"\\\1", text)


def _line(text):
    label = LABEL.match(text)
    start = f"**{label[0]}**" if label else ""
    return start + "".join(map(_piece, PARTS.split(text[label.end() if label else 0 :])))


def _process(app, what, name, thing, options, lines):
    made, block = [], False
    text = re.sub(r"`[^`]+`", lambda code: code[0].replace("\n", " "), "\n".join(lines))
    for line in text.split("\n"):
        if line.startswith("    "):
            made += ([] if block else ["", ".. code-block:: text", ""]) + [line]
        elif LABEL.match(line) or (block and line):
            made += ["", _line(line)]
        else:
            made.append(_line(line))
        block = line.startswith("    ") or (block and not line)
    lines[:] = [*made, ""]


def _cite(app, page, source):
    parts = re.split(r"(^```.*?^```$)", source[0], flags=re.M | re.S)
    source[0] = "".join(
        p if p.startswith("```") else re.sub(rf"{KEY}(?!\()", r"{cite}`\1`", p) for p in parts
    )


def setup(app):
    app.connect("source-read", _cite)
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}
