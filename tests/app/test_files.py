"""Files of the page: an address names what is served at it, and lets a browser keep it."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from starlette.testclient import TestClient

from app.ui.files import ADDRESSES, FILES, FOR_GOOD, file_address, serve_file
from app.ui.recordings import recorded

CLIENT = TestClient(serve_file)
PLAIN = {"accept-encoding": "identity"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_what_its_address_says_packed_or_not(name: str) -> None:
    address = file_address(name)
    assert ADDRESSES.fullmatch(f"/{address}")  # relative to the page
    plain, packed = CLIENT.get(address, headers=PLAIN), CLIENT.get(address)
    assert plain.content == packed.content  # unpacked by the client
    assert hashlib.sha256(plain.content).hexdigest().startswith(address.split("/")[-1])
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    assert packed.headers["content-type"] == f"{FILES[name][0]}; charset=utf-8"
    assert (packed.headers["cache-control"], packed.headers["vary"]) == (
        FOR_GOOD,
        "accept-encoding",
    )


def test_nothing_else_is_served() -> None:
    address = f"/{file_address('page.js')}"
    other = address[:-1] + ("0" if address[-1] != "0" else "1")
    for path in (other, "/files/absent.js/0123456789abcdef", "/files/..%2Fapp.py/0123456789abcdef"):
        answer = CLIENT.get(path)
        assert (answer.status_code, "cache-control" in answer.headers) == (404, False)
    assert CLIENT.post(address).status_code == 404
    assert CLIENT.head(address).status_code == 200
    assert not ADDRESSES.fullmatch("/files/../app.py/0123456789abcdef")


def test_recordings_are_data_in_a_script_of_their_own_which_the_page_loads() -> None:
    """As a string of a script, which no part of them can end."""
    assert file_address("recordings.js") in CLIENT.get(file_address("page.js")).text
    text = CLIENT.get(file_address("recordings.js")).text
    match = re.search(r'id: "mars-recorded", textContent: (".*"),\n', text)
    assert match is not None
    assert json.loads(match[1]) == recorded()
