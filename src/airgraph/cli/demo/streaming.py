"""Turns token ids into text as they come, never splitting a character."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

__all__ = ["TextStream", "printable"]

REPLACEMENT = "\ufffd"


class TextStream:
    """Feeds on token ids and returns the text that each one completes.

    decode: token ids -> text, U+FFFD for incomplete characters. Joined, the pieces are decode(all ids).
    Only a window of recent ids is decoded again at each step, so a long text costs no more a token than a short one.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        # The window is ids[start:], of which ids[start:shown] are already out. It keeps the previous piece as
        # context: a tokenizer may drop the space before the first word it is given.
        self._start = 0
        self._shown = 0

    def feed(self, token_id: int) -> str:
        """Take one id and return the text it completes, or "" while a character is incomplete."""
        self._ids.append(token_id)
        piece = self._pending()
        return "" if piece.endswith(REPLACEMENT) else self._emit(piece)

    def finish(self) -> str:
        """Return what is still held back; incomplete characters come out as U+FFFD."""
        return self._emit(self._pending())

    def _pending(self) -> str:
        shown = self._decode(self._ids[self._start : self._shown])
        return self._decode(self._ids[self._start :])[len(shown) :]

    def _emit(self, piece: str) -> str:
        if piece:
            self._start, self._shown = self._shown, len(self._ids)
        return piece


def printable(text: str) -> str:
    """Replace control characters, newline and tab excepted: a model must not steer the terminal."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else REPLACEMENT for c in text)
