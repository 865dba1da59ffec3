"""Ports of their own for pages that all name the same ones, so that they can be walked at the same time, on a machine that uses them."""

import random
import re
import socket

_NAMED = re.compile(r"((?:127\.0\.0\.1|localhost):|--port[ =]|\bport ?= ?)(\d{4,5})\b")
# Below those that connections are given, or a free one might be taken meanwhile; and none twice, for pages that are walked at once.
_UNTRIED = iter(random.sample(range(20_000, 32_000), 12_000))


class Ports:
    """Which port stands for which. Whoever is shown one sees it; whoever listens uses the other."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def real(self, shown: str) -> str:
        """The port that is used for one that a page names."""
        if shown not in self._real:
            self._real[shown] = str(_free_port())
        return self._real[shown]

    def to_real(self, text: str) -> str:
        """What a page says, as it is carried out."""
        return _NAMED.sub(lambda found: found[1] + self.real(found[2]), text)

    def to_shown(self, text: str) -> str:
        """What was printed, as a reader would see it."""
        for shown, real in self._real.items():
            text = re.sub(rf"(?<!\d){real}(?!\d)", shown, text)
        return text


def _free_port() -> int:
    for port in _UNTRIED:
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError("no port is free")
