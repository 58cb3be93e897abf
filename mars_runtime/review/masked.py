"""Which of two answers stands on which side, drawn from a secret that only the server has; and how
it seals what a browser keeps for it.

A side is one bit of HMAC-SHA-256 (RFC 2104) over the set, the prompt and the pair: the same at each
visit, and nothing that a browser gets tells it. A sealed text is enciphered with the same function
in counter mode under one key and authenticated under another (encrypt, then MAC).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mars_runtime.inputs import read_bytes

NUM_BYTES = 32
NONCE = 16
MAX_SEALED = 16_000_000
"""Characters of a sealed set. A browser keeps no larger one, because no larger one is accepted."""


class SealError(ValueError):
    """A sealed text that is not, or no longer, this server's; one sentence."""


def secret_in(folder: Path) -> bytes:
    """The secret that a folder holds, made when it is first needed. Raises OSError.

    It is written to a file of its own and then linked, so it is there whole or not at all. A
    shorter file was begun on a full disk and never used: it is replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "review.secret"
    with suppress(FileNotFoundError):
        found = read_bytes(path)
        if len(found) == NUM_BYTES:
            return found
        if len(found) > NUM_BYTES:
            raise OSError(f"{path} is damaged: remove it, and sides are drawn again")
        path.unlink(missing_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=folder, prefix="review.secret.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(NUM_BYTES))
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(partial, path)
        except FileExistsError:  # another process was first
            pass
        except OSError:  # a file system without links
            os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)
    return read_bytes(path)


def sides(secret: bytes, set_id: str, item: str, pair: Sequence[str]) -> tuple[str, str]:
    """(left, right) of two ways, whatever the order in which they are given."""
    first, second = sorted(pair)
    drawn = _digest(secret, "side", json.dumps([set_id, item, first, second]).encode())
    return (second, first) if drawn[0] & 1 else (first, second)


def seal(secret: bytes, value: Any) -> str:
    """A JSON value as text that only this secret opens."""
    plain = json.dumps(value, ensure_ascii=False).encode()
    nonce = secrets.token_bytes(NONCE)
    body = nonce + _enciphered(secret, nonce, plain)
    return base64.urlsafe_b64encode(body + _digest(secret, "seal", body)).decode()


def unseal(secret: bytes, text: str) -> Any:
    """Back again. Raises SealError."""
    try:
        whole = base64.urlsafe_b64decode(text.encode())
        body, tag = whole[:-NUM_BYTES], whole[-NUM_BYTES:]
        if not hmac.compare_digest(tag, _digest(secret, "seal", body)):
            raise ValueError("another's")
        return json.loads(_enciphered(secret, body[:NONCE], body[NONCE:]))
    except ValueError as error:
        raise SealError("This set was sealed by another server: make it again here.") from error


def _digest(secret: bytes, use: str, body: bytes) -> bytes:
    return hmac.new(secret, use.encode() + b"\0" + body, hashlib.sha256).digest()


def _enciphered(secret: bytes, nonce: bytes, text: bytes) -> bytes:
    key = _digest(secret, "key", nonce)
    blocks = -(-len(text) // NUM_BYTES)
    stream = b"".join(
        hmac.new(key, block.to_bytes(8, "big"), hashlib.sha256).digest() for block in range(blocks)
    )
    number = int.from_bytes(text, "big") ^ int.from_bytes(stream[: len(text)], "big")
    return number.to_bytes(len(text), "big")
