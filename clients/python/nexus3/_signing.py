"""Signed requests: what of a request is signed, and with what."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
from typing import Any, Dict, Optional

from .errors import ClientError

# Stands before what is signed, so that a signature of ours is one of nothing else.
DOMAIN = b"jsonrpc-hmac-v1\n"
# Every integer up to here is a double of its own.
INTEGER_SAFE_MAX = 2**53
ID_BYTES_MAX = 255
NONCE_BYTES = 16


class SigningKey:
    """What a client signs its requests with. Its secret is in no text that is made of it."""

    def __init__(self, text: str) -> None:
        """`ID:SECRET`; without the ID it is the server's own secret."""
        key_id, colon, secret = text.strip().partition(":")
        if not colon or not secret or len(key_id.encode()) > ID_BYTES_MAX:
            raise ClientError("a signing key must be ID:SECRET, or :SECRET for the server's own")
        self._id = key_id
        self._secret = secret.encode()

    def signed(self, request: Dict[str, Any]) -> str:
        """The request with its signature, for one time that it is sent: a server takes a signature once."""
        auth: Dict[str, Any] = {"timestamp": int(time.time()), "nonce": secrets.token_urlsafe(NONCE_BYTES)}
        if self._id:
            auth["key_id"] = self._id
        request = {**request, "auth": auth}
        auth["signature"] = self.signature(canonical(request))
        return canonical(request)

    def signature(self, form: str) -> str:
        """That of a request in canonical form."""
        mac = hmac.new(self._secret, DOMAIN + form.encode(), hashlib.sha256)
        return base64.b64encode(mac.digest()).decode("ascii")


def find(text: Optional[str]) -> Optional[SigningKey]:
    """The key that was given, else that of the environment, if there is one."""
    if text is None:
        text = os.environ.get("NEXUS3_SIGNING_KEY", "").strip() or None
    return None if text is None else SigningKey(text)


def canonical(value: Any) -> str:
    """The one form of a value, that of RFC 8785: no blanks, members by the UTF-16 of their names, numbers and strings as
    JavaScript writes them."""
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{text(name)}:{canonical(member)}" for name, member in members) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int):
        return integer(value)
    return number(value)


def text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def integer(value: int) -> str:
    """One that RFC 8785 could not tell from its neighbour could be exchanged for that without breaking the signature."""
    digits = int.__repr__(value)
    if abs(value) > INTEGER_SAFE_MAX:
        try:
            alone = number(float(value)) == digits
        except OverflowError:
            alone = False
        if not alone:
            raise ClientError(f"{digits} cannot be signed: no double is this integer and no other; write it as text")
    return digits


def number(value: float) -> str:
    """As ECMAScript writes a number. Its shortest digits are those of `repr`, which sets them out otherwise."""
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError("Out of range float values are not JSON compliant")
    if value == 0:
        return "0"
    mantissa, _, exponent = float.__repr__(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS times ten to the power of `point`.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count, sign = len(digits), "-" if value < 0 else ""
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    rest = "." + digits[1:] if count > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"
