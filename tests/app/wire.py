"""A connection that tests and tools can cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


def port_of(url: str) -> int:
    """Return the port of an address."""
    return int(url.rstrip("/").rsplit(":", 1)[1])


class Wire:
    """A TCP relay to a port of this machine that can be cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close every connection, and refuse new ones until ``mend``."""
        self.is_cut = True
        for item in self._open:
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def mend(self, port: int = 0) -> None:
        """Accept connections again, for another port if one is given."""
        self._target = port or self._target
        self.is_cut = False

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.is_cut:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_relay, args=pair, daemon=True).start()


def _relay(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
