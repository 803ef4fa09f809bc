"""Whether the other ranks live: each tells all others when it ends, and why.

A pair of ranks has a connection that carries nothing but that. It closes with the process, however
that ends, so a rank that was killed is noticed at once, also while the others compute.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from graphc.parallel.mesh import receive_news, send_news


class Life:
    """The connections of one rank to all others.

    `failed` is called once, from a thread, with the number of the first rank that failed and its
    last words, "" if it said nothing. A rank that ended in order does not count.
    """

    def __init__(
        self, connections: Sequence[socket.socket | None], failed: Callable[[int, str], None]
    ) -> None:
        self._connections = connections
        self._failed = failed
        self._closing = False
        self._thread = threading.Thread(target=self._watch, name="graphc life", daemon=True)
        if any(connection is not None for connection in connections):
            self._thread.start()

    def close(self) -> None:
        """End the thread, and all connections."""
        self._closing = True
        for connection in self._connections:
            if connection is not None:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join()

    def tell(self, news: Any) -> None:
        """Tell all others what happens to this rank: None for its end, or its last words."""
        for connection in self._connections:
            if connection is not None:
                with suppress(OSError):
                    send_news(connection, news)

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for rank, connection in enumerate(self._connections):
                if connection is not None:
                    selector.register(connection, selectors.EVENT_READ, rank)
            while selector.get_map():
                for key, _ in selector.select():
                    selector.unregister(key.fileobj)
                    peer = self._connections[key.data]
                    assert peer is not None, "only connections are watched"
                    try:
                        words = receive_news(peer)
                    except (OSError, EOFError, ValueError):
                        words = ""
                    if self._closing:
                        return
                    if words is not None:
                        return self._failed(key.data, str(words))
