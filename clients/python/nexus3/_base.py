"""What the two clients and their streams have in common."""

from __future__ import annotations

import os
from typing import Any, Dict, Generic, Mapping, Optional, Sequence, Type, TypeVar, Union, cast

from . import _signing
from ._core import Core, OpenCall, Streaming, Watching
from ._http import HttpTransport
from ._io import IO
from ._socket import SocketTransport, default_path
from ._stdio import StdioTransport
from .errors import ClientError
from .types import WatchResult

URL_DEFAULT = "http://127.0.0.1:8765"
TIMEOUT_DEFAULT_SECONDS = 60.0

C = TypeVar("C", bound="Client")
R = TypeVar("R")
Path = Union[str, "os.PathLike[str]", None]


class Client:
    _IO: Type[IO]

    def __init__(
        self,
        url: str = URL_DEFAULT,
        timeout: Optional[float] = TIMEOUT_DEFAULT_SECONDS,
        *,
        token: Optional[str] = None,
        agent_identity: Optional[str] = None,
        signing_key: Optional[str] = None,
    ) -> None:
        """Over HTTP.

        timeout: Seconds for a call and its retries, and for each wait of a stream. None for no limit.
        token: Looked for when absent, in `NEXUS3_API_KEY` and the server's own file; none is sent when empty.
        agent_identity: Makes every call with the rights of this agent only.
        signing_key: Signs every call with this key, `ID:SECRET`; that of `NEXUS3_SIGNING_KEY` when absent."""
        io, key = self._IO(), _signing.find(signing_key)
        self._core = Core(io, HttpTransport(io, url, token, agent_identity), timeout, key)

    @classmethod
    def over_socket(
        cls: Type[C],
        path: Path = None,
        timeout: Optional[float] = TIMEOUT_DEFAULT_SECONDS,
        *,
        signing_key: Optional[str] = None,
    ) -> C:
        """Over the Unix socket of a server on this machine, its usual one when no path is given. No token is needed."""
        client, io = cls.__new__(cls), cls._IO()
        key = _signing.find(signing_key)
        client._core = Core(io, SocketTransport(io, os.fspath(path or default_path())), timeout, key)
        return client

    @classmethod
    def over_stdio(
        cls: Type[C],
        command: Sequence[str] = ("nexus3", "--stdio"),
        timeout: Optional[float] = TIMEOUT_DEFAULT_SECONDS,
        *,
        cwd: Path = None,
        env: Optional[Mapping[str, str]] = None,
        signing_key: Optional[str] = None,
    ) -> C:
        """To a server of its own, which is started with the first call and ends with the client. Of streams, only
        those of `send` are cancelled by breaking out here; there is no connection to hang up.

        env: Variables beside those of this process."""
        client, io = cls.__new__(cls), cls._IO()
        client._core = Core(io, StdioTransport(io, command, cwd, env), timeout, _signing.find(signing_key))
        return client


class BaseAnswer(Generic[R]):
    """The answer to a call that is told of what happens before."""

    def __init__(self, opened: OpenCall, name: str) -> None:
        self._opened = opened
        self._name = name

    def _answer(self) -> R:
        if self._opened.result is None:
            raise ClientError(f"the {self._name} was ended before its answer")
        return cast(R, self._opened.result)


class BaseStream(BaseAnswer[R]):
    def __init__(self, core: Core, method: str, params: Dict[str, Any], agent_id: Optional[str] = None) -> None:
        self._streaming = Streaming(core, method, params, agent_id)
        super().__init__(self._streaming, "stream")

    @property
    def request_id(self) -> Union[int, str, None]:
        """The turn's name for `cancel`."""
        return cast(Union[int, str, None], self._streaming.call.params.get("request_id"))


class BaseWatch(BaseAnswer[WatchResult]):
    def __init__(self, core: Core, params: Dict[str, Any]) -> None:
        self._watching = Watching(core, params)
        super().__init__(self._watching, "watch")

    @property
    def watch_id(self) -> Optional[str]:
        """Its name for `unwatch`, once the first event was told."""
        return self._watching.watch_id
