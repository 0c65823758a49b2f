"""Who may talk to the explorer, and that nothing said to it stops it: a real server on 127.0.0.1, no browser."""

import ast
import dataclasses
import http.client
import math
import random
import socket
import time
from urllib.parse import urlsplit

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.methods import method_from_text
from dalembert.view.explorer.answers import answer
from dalembert.view.explorer.request import Request, choices, code_of, first_request, script

viser = pytest.importorskip("viser", reason="viser is not installed: pip install 'dalembert[explore]'")
msgspec = pytest.importorskip("msgspec", reason="viser is not installed: pip install 'dalembert[explore]'")
client = pytest.importorskip("websockets.sync.client", reason="viser is not installed")
InvalidStatus = pytest.importorskip("websockets.exceptions", reason="viser is not installed").InvalidStatus

KINDS = {name: getattr(da.zoo, name) for name in da.zoo.__all__}
# A first answer compiles on a busy machine; waiting ends as soon as the condition holds.
PATIENCE = 60.0


def wait(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited {PATIENCE:g} s for {what}"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def running():
    running = da.explore("KnifeEdge", ["leapfrog"], steps=200)
    try:
        wait(lambda: running.page.settled and running.page.answer is not None, "the first answer")
        yield running
    finally:
        running.close()


def got(running, path, host=None):
    """Status, headers and text of a plain request, which may name another host than the one it goes to."""
    there = urlsplit(running.url)
    line = http.client.HTTPConnection(there.hostname, there.port, timeout=20)
    try:
        line.request("GET", path, headers={"Host": host or there.netloc})
        answered = line.getresponse()
        return answered.status, answered.headers, answered.read().decode()
    finally:
        line.close()


def talk(running, path=None, host=None, **options):
    """A websocket, which may name another host than the one it goes to."""
    there = urlsplit(running.url)
    line = socket.create_connection((there.hostname, there.port), timeout=20)
    address = f"ws://{host or there.netloc}{there.path if path is None else path}"
    protocol = f"viser-v{viser.__version__}"
    options |= {
        "max_size": None,
        "max_queue": None,
        "compression": None,
    }  # as a browser, which reads everything
    return client.connect(address, sock=line, subprotocols=[protocol], **options)


def own(running):
    there = urlsplit(running.url)
    return there.port, there.path, there.path.strip("/")


def test_the_page_is_for_who_knows_its_address(running):
    port, path, token = own(running)
    assert len(token) >= 32
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}"):
        for spelled in (path, path.rstrip("/"), f"{path}?darkMode", f"{path}index.html"):
            status, headers, text = got(running, spelled, host)
            assert (status, headers["Referrer-Policy"]) == (200, "no-referrer")
            assert "<title>Viser</title>" in text
    for spelled in (
        "/",
        "/index.html",
        f"/?{token}",
        f"/{token[:-1]}/",
        f"/{token}x/",
        f"//{token}/",
        "/%C3%A9/",
    ):
        status, _, text = got(running, spelled)
        assert status == 403, spelled
        assert "token" in text
        assert token not in text


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example:{port}"],
)
def test_other_names_of_this_machine_are_refused(running, host):
    """A page whose name is made to point to 127.0.0.1 still says its own name."""
    port, path, _ = own(running)
    host = host.format(port=port)
    status, _, text = got(running, path, host)
    assert status == 403
    assert "not the address of the explorer" in text
    with pytest.raises(InvalidStatus, match="403"):
        talk(running, host=host)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost:{port}", "file://"]
)
def test_websockets_of_other_pages_are_refused(running, origin):
    port, *_ = own(running)
    with pytest.raises(InvalidStatus, match="403"):
        talk(running, origin=origin.format(port=port))


def test_websockets_need_the_token(running):
    port, *_ = own(running)
    for path in ("", "/", "/x", "/index.html"):
        for origin in (None, f"http://127.0.0.1:{port}"):
            with pytest.raises(InvalidStatus, match="403"):
                talk(running, path=path, origin=origin)


def test_websockets_of_the_page_and_of_programs_are_let_in(running):
    port, path, _ = own(running)
    # The client of viser leaves out the last slash.
    for host, origin in (
        (f"localhost:{port}", f"http://localhost:{port}"),
        (f"127.0.0.1:{port}", f"http://127.0.0.1:{port}"),
        (f"127.0.0.1:{port}", None),
    ):
        with talk(running, path=path.rstrip("/"), host=host, origin=origin) as line:
            assert len(line.recv(timeout=20)) > 100


def test_ports_that_cannot_be():
    for port in (-1, 65536, 99999, 10**30, True, 8080.0, "8080"):
        with pytest.raises(ValueError, match="a port is a whole number from 1 to 65535"):
            da.explore("KnifeEdge", ["leapfrog"], port=port)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"cannot listen on port {port} of 127.0.0.1 .*another port"):
            da.explore("KnifeEdge", ["leapfrog"], port=port)


def test_a_viser_that_opens_its_port_otherwise_is_refused(monkeypatch):
    """The hook is not public: where it is gone nothing may be served unguarded."""
    from dalembert.view.explorer import guard

    class Other:
        stopped = False

        def __init__(self, **_):
            pass

        def stop(self):
            Other.stopped = True

    monkeypatch.setattr(guard.viser, "ViserServer", Other)
    with pytest.raises(RuntimeError, match=r"install viser 1\.1\.1"):
        guard.guarded_server(None)
    assert Other.stopped


def test_a_port_of_ones_own_and_two_at_once(running):
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    other = da.explore("KnifeEdge", ["leapfrog"], steps=200, port=port)
    try:
        assert urlsplit(other.url).port == port
        assert own(other)[2] != own(running)[2]
        assert got(other, own(running)[1])[0] == 403
    finally:
        other.close()


def camera():
    near = {"wxyz": (1.0, 0.0, 0.0, 0.0), "position": (1.0, 1.0, 1.0), "look_at": (0.0, 0.0, 0.0)}
    more = {"up_direction": (0.0, 0.0, 1.0), "fov": 1.0, "near": 0.1, "far": 100.0}
    size = {"image_height": 100, "image_width": 100}
    return {"type": "ViewerCameraMessage", **near, **more, **size}


def update(control, **updates):
    return {"type": "GuiUpdateMessage", "uuid": control._impl.uuid, "updates": updates}


def say(line, message):
    line.send(msgspec.msgpack.encode(message))


def playing(page):
    """Whether the clock moves the scene."""
    if not page.playing:
        page._toggle()
    before = page.now
    wait(lambda: page.now != before, "the clock")
    return page.playing


def settled(page):
    wait(lambda: page.settled, "an answer")


def test_no_value_ends_the_clock_or_the_page(running):
    page = running.page
    controls = page.controls
    everything = {
        "speed": page.speed,
        "time": page.slider,
        "follow": page.follow,
        "system": controls.system,
        "start": controls.start,
        "q0": controls.q0,
        "v0": controls.v0,
        "h": controls.h,
        "steps": controls.steps,
        "method": controls.methods[0],
    }
    bad = (
        "abc",
        "",
        "nan",
        "1e999",
        math.nan,
        math.inf,
        -math.inf,
        -1,
        0,
        10**15,
        1e308,
        5e-324,
        True,
        "é\0<b>",
    )
    with talk(running) as line:
        say(line, camera())
        wait(lambda: running.server.get_clients(), "the camera")
        good = {name: control.value for name, control in everything.items()}
        for name, control in everything.items():
            for value in bad:
                say(line, update(control, value=value))
            settled(page)
            assert playing(page), name
            say(line, update(control, value=good[name]))
            wait(lambda control=control, name=name: control.value == good[name], f"{name} to be set back")
            settled(page)
        # What a control consists of is nobody's but the server's; and nothing here leaves this machine.
        for name in ("value", "update_cb", "removed", "props", "gui_api"):
            say(line, update(page.slider, **{name: None}))
            say(line, update(page.slider, **{"value": 0.0, name: []}))
        for message in ({"type": "ShareUrlRequest"}, {"type": "Nonsense"}, {}, [], 1, None):
            say(line, message)
        line.send(b"\xc1")
        line.send("text")
        say(line, update(controls.h, value=0.05))
        wait(lambda: page.settled and page.answer.request.h == 0.05, "an answer after all this")
        say(line, update(controls.h, value=good["h"]))
        wait(lambda: page.settled and page.answer.request.h == good["h"], "the step that was there")
    assert page.status.content == ""
    assert page.slider._impl.update_cb
    assert running.server._share_tunnel is None
    assert all(thread.is_alive() for thread in page.threads)
    assert playing(page)
    page._toggle()


SPELLINGS = (
    "0; 0; 1.5",
    "0,0,1.5",
    " 0 , ; 0;,1.5;",
    "0,0,1_000e-3",
    "-0, 0, 1.5",
    "0,\n0,\t1.5",
    "\u0660, 0, 1.5",
)


@pytest.mark.parametrize("q0", SPELLINGS)
def test_every_accepted_spelling_is_copied_as_python(q0):
    request = dataclasses.replace(first_request("KnifeEdge", KINDS, ["leapfrog"], 50), q0=q0)
    text = script(request, KINDS)
    tree = ast.parse(text)
    given = next(
        x.value for x in tree.body if isinstance(x, ast.Assign) and isinstance(x.targets[0], ast.Tuple)
    )
    found = answer(request, KINDS)
    assert found.problems == []
    for values, own in zip(ast.literal_eval(given), (found.runs[0].q[0], found.runs[0].v[0]), strict=True):
        assert np.array_equal(values, own)


def built(code):
    """The value of an expression of names and literals alone."""

    def value(node):
        if isinstance(node, ast.Call):
            return value(node.func)(*map(value, node.args), **{k.arg: value(k.value) for k in node.keywords})
        if isinstance(node, ast.Attribute):
            return getattr(value(node.value), node.attr)
        return da if isinstance(node, ast.Name) else ast.literal_eval(node)

    return value(ast.parse(code, mode="eval").body)


@pytest.mark.parametrize(
    "spelling",
    [
        *("gni:gauss=3", "gni:trapezoidal,momentum,restart=20", "gni:alpha=0.3,exact", "gni:midpoint"),
        *("dla-variational:exp", "dla-variational:cayley,left", "dla-variational:gauss=2,point=0.3"),
        *("edla:gauss=3,continuation,unpinned", "edla:alpha=0.25", "lie-gni:mid,exact,restart=3"),
        *("reference:1e-9,1e-8", "dd:itoh-abe@6", "leapfrog:momentum", "frame:gonzalez@8"),
    ],
)
def test_methods_with_options_are_copied_as_python(spelling):
    assert built(code_of(method_from_text(spelling))) == method_from_text(spelling)


class Outer:
    class Skate(da.System):
        coordinates = ("x", "y", "theta")
        step = 0.1
        size: float = 1.0

        def metric(self, q):
            return self.size * jnp.eye(3)

        def constraints(self, q):
            return jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]])


def test_systems_of_ones_own_are_copied_as_python():
    local = type("not a name", (Outer.Skate,), {})
    made = Outer.Skate(2.0)
    names = {
        "mine:Outer.Skate": Outer.Skate,
        "pack.mine:Skate": Outer.Skate,
        "mine:f.<locals>.Skate": Outer.Skate,
        "__main__:Skate": Outer.Skate,
        "mine:local": local,
        "nobody's": local,
        "a label: with a colon": made,
        "two\nlines": made,
        "class:None": made,
    }
    for name, kind in names.items():
        text = script(Request(name, (), "0,0,0", "0,0,1", ("leapfrog",), 0.1, 5), {name: kind})
        ast.parse(text)
        assert "da.simulate(system" in text
    request = Request("mine:Outer.Skate", (("size", 3.0),), "0,0,0", "0,0,1", ("leapfrog",), 0.1, 5)
    text = script(request, {"mine:Outer.Skate": Outer.Skate})
    assert "from mine import Outer\n\nsystem = Outer.Skate(size=3.0)\n" in text


ODD = (
    *("", "abc", "nan", "1e999", "0;0;1.5", "1,2", "0,0,0", ",;,", "\0", "é", "1" * 5000, "frame", "none"),
    *(math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-320, 1e308, 0.1, 2.5),
    *(0, -1, 7, 10**30, 10**400, True, None, (), [], {}),
)


def test_requests_at_random_become_a_request_or_a_sentence():
    """What `checked` lets through is Python that parses; everything else is a ValueError with a short sentence."""
    from dalembert.view.explorer.request import checked

    choose = random.Random(8)
    starts = {name: first_request(name, KINDS) for name in ("KnifeEdge", "ChaplyginSleigh")}
    accepted = 0
    for _ in range(2000):
        name = choose.choice(list(starts))
        request = starts[name]
        for field in choose.sample(
            ("system", "parameters", "q0", "v0", "methods", "h", "steps"), choose.choice((1, 1, 2))
        ):
            value = choose.choice(ODD)
            if field == "parameters":
                names = [c.name for c in choices(KINDS[name])] or [""]
                value = ((choose.choice(names), value),)
            elif field == "methods":
                value = (value,) if isinstance(value, str) else ()
            request = dataclasses.replace(request, **{field: value})
        sentence = ""
        try:
            plain = checked(request, KINDS)
        except ValueError as error:
            sentence = str(error)
        if sentence:
            # The longest one lists the names of all systems; what was typed is cut short.
            assert 10 < len(sentence) < 200 + len(", ".join(KINDS)), request
            assert "\n" not in sentence, request
            assert answer(request, KINDS).problems == [sentence]
            continue
        accepted += 1
        assert checked(plain, KINDS) == plain
        ast.parse(script(request, KINDS))
    assert accepted > 100
