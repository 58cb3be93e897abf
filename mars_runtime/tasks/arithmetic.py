"""Sums written out as a child would do them: tens, then ones, then both together.

Knows no story; easy sums stay on one line and only hard ones are taken apart.
"""

from __future__ import annotations

import re

_SUM = re.compile(r"(\d+) ([+-]) (\d+) = (\d+)")


def add(a: int, b: int) -> str:
    """The sum of two numbers; taken apart where both have tens or the ones carry."""
    tens, ones = a // 10 * 10 + b // 10 * 10, a % 10 + b % 10
    has_carry = ones >= 10 and tens > 0
    has_two_tens = a >= 10 and b >= 10 and ones > 0
    between = f"{tens} + {ones} = " if has_carry or has_two_tens else ""
    return f"{a} + {b} = {between}{a + b}"


def subtract(a: int, b: int) -> str:
    """The difference of two numbers; the tens go first where the ones have to borrow."""
    tens, ones = b // 10 * 10, b % 10
    has_borrow = tens > 0 and a % 10 < ones
    between = f"{a} - {tens} - {ones} = {a - tens} - {ones} = " if has_borrow else ""
    return f"{a} - {b} = {between}{a - b}"


def written_out(steps: str) -> str:
    """Write out every sum and difference in a text of steps."""

    def one(match: re.Match[str]) -> str:
        a, b = int(match[1]), int(match[3])
        return add(a, b) if match[2] == "+" else subtract(a, b)

    return _SUM.sub(one, steps)
