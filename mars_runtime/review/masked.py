"""Masked sides and sealed texts, both derived from a secret that only the server has.

The side of an answer is one bit of HMAC-SHA-256 (RFC 2104) over the set, the prompt and the pair.
It is the same at each visit, and a browser cannot compute it. A sealed text is a Fernet token
(AES-128-CBC, HMAC-SHA-256), which a browser can store but neither read nor change.
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

from cryptography.fernet import Fernet, InvalidToken
from filelock import FileLock

from mars_runtime.inputs import read_bytes

NUM_BYTES = 32
MAX_SEALED = 16_000_000
"""Most characters of a sealed set. A browser stores no larger one, because the server accepts no
larger one.
"""
NOT_OURS = "This set was sealed by another server or an earlier version. Create it again."


class SealError(ValueError):
    """A sealed text was damaged or has another key; the message is one sentence for visitors."""


def secret_in(folder: Path) -> bytes:
    """Return the secret of a folder and create it on first use. Raises OSError.

    It is written to a temporary file and then linked, so it is never incomplete. A shorter file
    comes from a full disk and was never used, so it is replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "review.secret"
    with suppress(FileNotFoundError):
        if secret := _read_secret(path):
            return secret
        with FileLock(folder / "review.secret.lock"):  # only one process may remove it
            if secret := _read_secret(path):
                return secret
            path.unlink()
    descriptor, partial = tempfile.mkstemp(dir=folder, prefix="review.secret.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(NUM_BYTES))
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(partial, path)
        except FileExistsError:  # another process created it first
            pass
        except OSError:  # a file system without links
            os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)
    return read_bytes(path)


def _read_secret(path: Path) -> bytes:
    """Return the secret in a file, or nothing if the file is too short. Raises OSError."""
    content = read_bytes(path)
    if len(content) > NUM_BYTES:
        raise OSError(f"{path} is damaged; delete it to draw the sides again")
    return content if len(content) == NUM_BYTES else b""


def sides(secret: bytes, set_id: str, item: str, pair: Sequence[str]) -> tuple[str, str]:
    """Return (left, right) of two methods, regardless of their order in ``pair``."""
    first, second = sorted(pair)
    drawn = _digest(secret, "side", json.dumps([set_id, item, first, second]).encode())
    return (second, first) if drawn[0] & 1 else (first, second)


def seal(secret: bytes, value: Any) -> str:
    """Return a JSON value as text that only this secret opens."""
    return _cipher(secret).encrypt(json.dumps(value, ensure_ascii=False).encode()).decode()


def unseal(secret: bytes, text: str) -> Any:
    """Return the value that ``seal`` was given. Raises SealError."""
    try:
        return json.loads(_cipher(secret).decrypt(text))
    except (InvalidToken, ValueError) as error:
        raise SealError(NOT_OURS) from error


def _cipher(secret: bytes) -> Fernet:
    """Return Fernet with a key derived from the secret, separate from the one that draws sides."""
    return Fernet(base64.urlsafe_b64encode(_digest(secret, "seal", b"")))


def _digest(secret: bytes, use: str, body: bytes) -> bytes:
    return hmac.new(secret, use.encode() + b"\0" + body, hashlib.sha256).digest()
