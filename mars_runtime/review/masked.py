"""Masked reviews: hide which method wrote which answer, with a secret that only the server has.

One bit of HMAC-SHA-256 (RFC 2104) over set, prompt and methods decides which answer is on the left.
It is the same at each visit, and a browser cannot compute it. Sealed texts are Fernet tokens
(AES-128-CBC with HMAC-SHA-256): browsers store them but can neither read nor change them.
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
"""Maximum length of a sealed set in characters; the server accepts no larger one."""
NOT_OURS = "Another server or an earlier version created this set. Create it again."


class SealError(ValueError):
    """A text cannot be unsealed: it was changed, or sealed with another secret."""


def secret_in(folder: Path) -> bytes:
    """Return the secret stored in a folder; create it on first use. Raises OSError.

    A new secret is written to a temporary file that is then linked under its name, so other
    processes never read an incomplete one. A file that is too short, for example after a full disk,
    was never used and is replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "review.secret"
    with suppress(FileNotFoundError):
        if secret := _read_secret(path):
            return secret
        with FileLock(folder / "review.secret.lock"):  # only one process may delete the file
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
        except FileExistsError:  # another process was first
            pass
        except OSError:  # the file system has no hard links
            os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)
    return read_bytes(path)


def _read_secret(path: Path) -> bytes:
    """Return the secret in a file; empty if the file is too short. Raises OSError."""
    content = read_bytes(path)
    if len(content) > NUM_BYTES:
        raise OSError(f"{path} is damaged; delete it to create a new secret")
    return content if len(content) == NUM_BYTES else b""


def sides(secret: bytes, set_id: str, item: str, pair: Sequence[str]) -> tuple[str, str]:
    """Return the methods to show on the left and on the right, in this order.

    The order of ``pair`` has no effect.
    """
    first, second = sorted(pair)
    drawn = _digest(secret, "side", json.dumps([set_id, item, first, second]).encode())
    return (second, first) if drawn[0] & 1 else (first, second)


def seal(secret: bytes, value: Any) -> str:
    """Encrypt a JSON value as text that ``unseal`` decrypts with the same secret."""
    return _cipher(secret).encrypt(json.dumps(value, ensure_ascii=False).encode()).decode()


def unseal(secret: bytes, text: str) -> Any:
    """Decrypt the result of ``seal``. Raises SealError."""
    try:
        return json.loads(_cipher(secret).decrypt(text))
    except (InvalidToken, ValueError) as error:
        raise SealError(NOT_OURS) from error


def _cipher(secret: bytes) -> Fernet:
    """Return a cipher. Its key is derived from the secret and used only here."""
    return Fernet(base64.urlsafe_b64encode(_digest(secret, "seal", b"")))


def _digest(secret: bytes, use: str, body: bytes) -> bytes:
    return hmac.new(secret, use.encode() + b"\0" + body, hashlib.sha256).digest()
