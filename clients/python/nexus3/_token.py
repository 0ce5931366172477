"""Finding the token that a server on this machine left for its user."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Optional

from .errors import ClientError

PORT_DEFAULT = 8765

# Largest token file that is read. A token has 47 characters; whatever is longer than this is something else.
FILE_BYTES_MAX = 4096


def find(port: int) -> Optional[str]:
    """The token for the server on `port`: that of the environment, else that of the port's own file. The file of another
    port is no way out: who listens here would be handed the token of the server there."""
    token = usable(os.environ.get("NEXUS3_API_KEY", ""), "NEXUS3_API_KEY")
    if token is not None:
        return token
    home = os.environ.get("NEXUS3_HOME") or os.path.join(os.path.expanduser("~"), ".nexus3")
    path = Path(home, "rpc.token" if port == PORT_DEFAULT else f"rpc-{port}.token")
    try:
        text = _read_private(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        warnings.warn(f"token file {path} skipped: {error}", stacklevel=2)
        return None
    return usable(text, str(path))


def usable(text: str, source: str) -> Optional[str]:
    """The token in `text`, without the white space around it; none when nothing else is there."""
    token = text.strip()
    if not all("!" <= character <= "~" for character in token):
        raise ClientError(f"the token from {source} is not usable: a token has visible ASCII characters only")
    return token or None


def is_ours(host: str) -> bool:
    """Whether servers of this machine listen there, so that a token found here may go there. On the further addresses
    of the loopback network, as on any other machine, listens somebody else."""
    return host in ("127.0.0.1", "::1")


def _read_private(path: Path) -> str:
    """The file's text, if it is ours and none but us may read it. Owner and mode are those of the opened file, so that
    no other can be put in its place between the check and the reading."""
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid():
            raise OSError(f"it belongs to another user ({found.st_uid})")
        if found.st_mode & 0o077:
            mode = found.st_mode & 0o777
            raise OSError(f"others may read it (mode {mode:04o}); make it private with chmod 600")
        return file.read(FILE_BYTES_MAX).decode("utf-8", "replace")
