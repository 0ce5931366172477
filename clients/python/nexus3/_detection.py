"""Is a server there? One question without a token tells: ours answers it, or refuses it in its own words."""

from __future__ import annotations

import enum
import time

from ._http import HEAD_BYTES_MAX, Body, authority, read_head
from ._io import IO, TIMEOUTS
from ._reader import Reader
from ._retry import Deadline
from ._rpc import Call, read_message, request_bytes
from .errors import ClientError

POLL_INTERVAL_SECONDS = 0.1

# Other JSON-RPC servers refuse too, but not with this `data.type`. A server that has been asked too often, or has too
# much to do, is there all the same.
OURS = ("AUTHENTICATION_FAILED", "RATE_LIMITED", "RESOURCE_UNAVAILABLE")


class Detection(enum.Enum):
    """What listens on a port."""

    NO_SERVER = "no_server"
    NEXUS_SERVER = "nexus_server"
    OTHER_SERVICE = "other_service"
    # Something may, but it did not answer in time.
    TIMEOUT = "timeout"
    # It could not be found out.
    ERROR = "error"


async def detect(io: IO, host: str, port: int, timeout: float) -> Detection:
    deadline = Deadline(timeout)
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        connection = await io.connect((address, port), deadline)
    except TIMEOUTS:
        return Detection.TIMEOUT
    except ConnectionRefusedError:
        return Detection.NO_SERVER
    except OSError:
        return Detection.ERROR
    body = request_bytes(Call(1, "rpc.version", {}))
    head = f"POST /rpc HTTP/1.1\r\nhost: {authority(address, port)}\r\ncontent-length: {len(body)}\r\n\r\n"
    try:
        connection.write(head.encode("ascii") + body, deadline)
        reader = Reader(connection.read, deadline)
        _, headers = await read_head(reader)
        answer = read_message(await Body(reader, headers, HEAD_BYTES_MAX).whole())
    except TIMEOUTS:
        return Detection.TIMEOUT
    except (OSError, EOFError, ClientError):
        # Whoever took the connection and does not speak as we do is somebody else.
        return Detection.OTHER_SERVICE
    finally:
        connection.close()
        await io.sleep(0)
    result, error = answer.get("result"), answer.get("error")
    data = error.get("data") if isinstance(error, dict) else None
    ours = isinstance(data, dict) and data.get("type") in OURS
    ours = ours or (isinstance(result, dict) and "protocol" in result)
    return Detection.NEXUS_SERVER if answer.get("jsonrpc") == "2.0" and ours else Detection.OTHER_SERVICE


async def wait(io: IO, host: str, port: int, timeout: float) -> bool:
    end = time.monotonic() + timeout
    while True:
        left = end - time.monotonic()
        if left <= 0:
            return False
        if await detect(io, host, port, left) is Detection.NEXUS_SERVER:
            return True
        await io.sleep(max(0.0, min(POLL_INTERVAL_SECONDS, end - time.monotonic())))
