"""Decides who may talk to the explorer and which messages it accepts. Only this module reaches into viser.

A page on the web can send requests to 127.0.0.1 under a host name of its own that resolves to 127.0.0.1, and
websockets have no same-origin rule. Every client must therefore know a secret and name this machine as its host. The
secret is the first part of the path of the address, because viser's client passes the path on to its websocket, but no
query.
"""

import http
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import viser
from viser.infra import _infra
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
# The longest message that is accepted, which exceeds any start or parameter that a reader types.
LONGEST = 100_000


def listening(port: int | None) -> socket.socket:
    """A socket on this machine that listens on the port, or on a free port for None or 0."""
    port = 0 if port is None else port
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise ValueError(f"a port is a whole number from 1 to 65535, or 0 for any that is free; got {port!r}")
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise ValueError(
            f"cannot listen on port {port} of {HOST} ({error.strerror or error}); "
            "choose another port, or leave it out to get a free one"
        ) from None


infra: Any = _infra


class Door:
    """Admits clients that name this machine and know the token, but never pages of other origins."""

    def __init__(self, port: int):
        self.token = secrets.token_urlsafe(32)
        # Browsers leave out port 80, the default of plain HTTP.
        self.hosts = {f"{name}:{port}" for name in NAMES} | (set(NAMES) if port == 80 else set())
        self.url = f"http://{HOST}:{port}/{self.token}/"

    def refusal(self, path: str, headers: Headers) -> str:
        """The reason why a request is refused; empty if it is not."""
        hosts, origins = headers.get_all("Host"), headers.get_all("Origin")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return (
                "This is not the address of the explorer: open the one that it said when it began. "
                "Through a tunnel, use the same port on both sides."
            )
        # Programs other than browsers send no origin, and for them the token is enough.
        if origins and origins != [f"http://{x}" for x in self.hosts if origins[0].lower() == f"http://{x}"]:
            return "Pages of other origins may not talk to the explorer."
        if not secrets.compare_digest(_parted(path)[0].encode(errors="surrogateescape"), self.token.encode()):
            return "The address lacks the explorer's token: open the one that it said when it began."
        return ""

    def checked(self, inner: Callable[..., Any] | None) -> Callable[[ServerConnection, Request], Any]:
        """A function that answers requests which pass this door, with the token removed from the path."""

        def answered(connection: ServerConnection, request: Request) -> Any:
            refused = self.refusal(request.path, request.headers)
            if refused:
                return connection.respond(http.HTTPStatus.FORBIDDEN, f"{refused}\n")
            found = inner(connection, Request(_parted(request.path)[1], request.headers)) if inner else None
            if isinstance(found, Response):
                found.headers["Referrer-Policy"] = "no-referrer"  # the address is a secret
            return found

        return answered


def _parted(path: str) -> tuple[str, str]:
    """The first part of a path, and the rest of the path."""
    first, _, rest = path.partition("?")[0].removeprefix("/").partition("/")
    return first, f"/{rest}"


def acceptable(raw: Any) -> bool:
    """Whether a message is one that the page needs: the position of the camera, or the new value of a control.

    Viser also accepts others, with which a client could set any property of a control or publish the page on the web.
    """
    try:
        said = msgspec.msgpack.decode(raw)
        if said["type"] == "ViewerCameraMessage":
            return True
        value = said["updates"]["value"]
        return (
            said["type"] == "GuiUpdateMessage"
            and set(said["updates"]) == {"value"}
            and isinstance(value, bool | int | float | str)
            and (not isinstance(value, str) or len(value) <= LONGEST)
        )
    except (msgspec.DecodeError, TypeError, KeyError, UnicodeError):
        return False


class _Connection(ServerConnection):
    """A connection that drops messages which are not acceptable."""

    async def recv(self, decode: bool | None = None) -> Any:
        while True:
            raw = await super().recv(decode)
            if acceptable(raw):
                return raw


class _With:
    """A module in which some names are replaced."""

    def __init__(self, module: Any, **names: Any):
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def _served_by(instead: Callable[..., Any]) -> Iterator[None]:
    """Replaces the `serve` of websockets that viser uses, because viser has no setting for this."""
    with _ONE_AT_A_TIME:
        real: Any = infra.websockets
        server = _With(real.asyncio.server, serve=instead)
        infra.websockets = _With(real, asyncio=_With(real.asyncio, server=server))
        try:
            yield
        finally:
            infra.websockets = real


def guarded_server(port: int | None) -> tuple[viser.ViserServer, str]:
    """A viser server, reachable only from this machine by clients that know its address; and the address."""
    listens = listening(port)
    door = Door(listens.getsockname()[1])
    served = []

    def serve_behind_the_door(handler: Any, *_: Any, process_request: Any = None, **options: Any) -> Any:
        served.append(True)
        for name in ("host", "port", "sock"):
            options.pop(name, None)
        options |= {"process_request": door.checked(process_request), "create_connection": _Connection}
        return serve(handler, sock=listens, **options)

    with _served_by(serve_behind_the_door):
        made = viser.ViserServer(host=HOST, port=0, label="dalembert", verbose=False)
    if not served:
        made.stop()
        listens.close()
        raise RuntimeError(
            f"viser {viser.__version__} opens its port in a way that this version of dalembert does not know, so "
            "any page on the web could read what the explorer shows; install viser 1.1.1"
        )
    return made, door.url
