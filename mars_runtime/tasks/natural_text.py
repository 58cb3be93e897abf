"""Clean and cut natural text: plain ASCII, no markup, paragraphs, sentences, passages.

Knows no file and no task.
"""

from __future__ import annotations

import re
import unicodedata

_REPLACED = {
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
    "\u2013": "-",
    "\u2014": " - ",
    "\u2026": "...",
    "\u00a0": " ",
}
_NOISE = re.compile(
    r"^\s*(?:#.*|[-*_=\s]{3,}|\[?illustration.*|page \d+|\d+|.*gutenberg.*|<<<.*)\s*$",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(A-Z])")


def to_ascii(text: str) -> str:
    """Curly quotes and dashes to ASCII ones, accents dropped, the rest removed."""
    for old, new in _REPLACED.items():
        text = text.replace(old, new)
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return text.replace("``", '"').replace("''", '"')


def close_quotes(text: str) -> str:
    """Give back the quotation marks that were stripped from the two ends of a section."""
    text = to_ascii(text).strip()
    first, last = text.find('"'), text.rfind('"')
    if first > 0 and text[first - 1] in ",.!?;-":
        text = '"' + text
        last += 1
    if 0 <= last < len(text) - 1 and (last == 0 or text[last - 1].isspace()):
        text += '"'
    return text


def clean(text: str) -> str:
    """Plain paragraphs, one per line: no headings, emphasis, brackets, page numbers."""
    text = re.sub(r"!?\[[^\]]*\]\([^)]*\)", "", to_ascii(text))
    text = re.sub(r"\[[^\]]{0,200}\]|<[^>]{0,80}>", "", text)
    text = re.sub(r"--+", " - ", text)
    lines = ["" if _NOISE.match(line) else line.strip() for line in text.splitlines()]
    text = re.sub(r"[_*#|\\{}~^`<>\[\]]", "", "\n".join(lines))
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    return "\n".join(paragraph for paragraph in paragraphs if paragraph)


def sentences(text: str) -> list[str]:
    """Split at full stops and their like; the pieces joined by blanks give the words back."""
    pieces: list[str] = []
    start = 0
    for match in _SENTENCE.finditer(text):
        end = match.start() + len(match.group().rstrip())
        pieces.append(text[start:end].strip())
        start = match.end()
    return [piece for piece in [*pieces, text[start:].strip()] if piece]


def passages(text: str, shortest: int = 1500, longest: int = 2500) -> list[tuple[str, str]]:
    """Cut cleaned text into (opening of one to three sentences, what follows) pairs."""
    units: list[str] = []
    for paragraph in text.split("\n"):
        parts = sentences(paragraph)
        units += [part + " " for part in parts[:-1]] + [part + "\n" for part in parts[-1:]]
    found: list[tuple[str, str]] = []
    index = 0
    while index < len(units):
        opening = units[index]
        index += 1
        for _ in range(2):
            if index < len(units) and len(opening) < 120:
                opening += units[index]
                index += 1
        body = ""
        while index < len(units) and len(body) < (shortest + longest) // 2:
            if len(body) + len(units[index]) > longest and len(body) >= shortest:
                break
            body += units[index]
            index += 1
        if len(body) >= shortest and len(opening) <= 600:
            found.append((opening.strip(), body.strip()[: longest + 600]))
    return found
