"""Text that comes from a file, as it may stand on any page: no control characters, which break pictures and terminals."""

from __future__ import annotations

import unicodedata

KEPT = "\n\t"
"""Control characters that are layout."""


def legible(text: str) -> str:
    """Return a text with every control character, and what turns the direction of text, replaced by a visible sign.

    Those that have a symbol of their own get it; nothing else changes, so that JSON in a text stays JSON.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if harmless(character) else _sign(character) for character in text)


def harmless(character: str) -> bool:
    """Tell whether a character does nothing to a terminal or to the direction of text."""
    if character in KEPT:
        return True
    kind = unicodedata.category(character)
    return (
        kind not in ("Cc", "Cs", "Zl", "Zp")
        and not (kind == "Cf" and unicodedata.bidirectional(character) in TURNING)
        and (ord(character) & 0xFFFE != 0xFFFE)
    )


TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def _sign(character: str) -> str:
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"
