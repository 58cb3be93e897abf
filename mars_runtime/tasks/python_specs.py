"""What a Python function of the tasks is made of, and the functions of numbers.

Knows no prompt frames and no checker. In all texts {x} is a number, {t} a list of numbers, {s} a
string, {w} a list of strings, {k} a small constant, {m} a larger one and {c} a letter.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spec:
    """One function: `args` names its parameters by kind, `lines` is its body."""

    kind: str
    names: tuple[str, ...]
    args: str
    does: tuple[str, ...]
    lines: str


def spec(kind: str, names: str, args: str, does: str, lines: str) -> Spec:
    """Write a Spec compactly: names between blanks, descriptions between bars."""
    return Spec(kind, tuple(names.split()), args, tuple(does.split(" | ")), lines)


NUMBER_SPECS = (
    spec(
        "add", "add_{k} plus_{k}", "x", "returns {x} plus {k} | adds {k} to {x}", "return {x} + {k}"
    ),
    spec(
        "subtract",
        "minus_{k} subtract_{k}",
        "x",
        "returns {x} minus {k} | takes {k} away from {x}",
        "return {x} - {k}",
    ),
    spec(
        "multiply",
        "times_{k} multiply_by_{k}",
        "x",
        "returns {x} times {k} | multiplies {x} by {k}",
        "return {x} * {k}",
    ),
    spec(
        "scale_shift",
        "scale_and_add line",
        "x",
        "returns {k} times {x} plus {m} | multiplies {x} by {k} and adds {m}",
        "return {k} * {x} + {m}",
    ),
    spec(
        "square",
        "square squared",
        "x",
        "returns the square of {x} | squares {x}",
        "return {x} * {x}",
    ),
    spec(
        "is_even",
        "is_even even",
        "x",
        "tells whether {x} is even | checks if {x} is even",
        "return {x} % 2 == 0",
    ),
    spec(
        "is_odd",
        "is_odd odd",
        "x",
        "tells whether {x} is odd | checks if {x} is odd",
        "return {x} % 2 == 1",
    ),
    spec(
        "divisible",
        "divisible_by_{k} is_multiple_of_{k}",
        "x",
        "tells whether {x} is divisible by {k} | checks if {x} is a multiple of {k}",
        "return {x} % {k} == 0",
    ),
    spec(
        "remainder",
        "remainder_{k} mod_{k}",
        "x",
        "returns the remainder of {x} divided by {k} | gives {x} modulo {k}",
        "return {x} % {k}",
    ),
    spec(
        "bigger_than",
        "more_than_{m} above_{m}",
        "x",
        "tells whether {x} is greater than {m} | checks if {x} is above {m}",
        "return {x} > {m}",
    ),
    spec(
        "absolute",
        "absolute distance_to_zero",
        "x",
        "returns the absolute value of {x} | gives {x} without its sign",
        "if {x} < 0:\n    return -{x}\nreturn {x}",
    ),
    spec(
        "clamp",
        "clamp limit",
        "x",
        "keeps {x} between {k} and {m} | limits {x} to the range from {k} to {m}",
        "if {x} < {k}:\n    return {k}\nif {x} > {m}:\n    return {m}\nreturn {x}",
    ),
    spec(
        "sign",
        "sign sign_of",
        "x",
        "returns 1, 0 or -1 as the sign of {x} | gives the sign of {x} as 1, 0 or -1",
        "if {x} > 0:\n    return 1\nif {x} < 0:\n    return -1\nreturn 0",
    ),
    spec(
        "factorial",
        "factorial product_up_to",
        "x",
        "returns the factorial of {x} | multiplies all numbers from 1 to {x}",
        "result = 1\nfor i in range(1, {x} + 1):\n    result = result * i\nreturn result",
    ),
    spec(
        "fibonacci",
        "fibonacci fib",
        "x",
        "returns the Fibonacci number with index {x} | gives Fibonacci number {x}, counting from 0",
        "a = 0\nb = 1\nfor i in range({x}):\n    a, b = b, a + b\nreturn a",
    ),
    spec(
        "sum_to",
        "sum_to add_up_to",
        "x",
        "returns the sum of the numbers from 1 to {x} | adds all numbers from 1 to {x}",
        "total = 0\nfor i in range(1, {x} + 1):\n    total = total + i\nreturn total",
    ),
    spec(
        "countdown",
        "countdown count_down",
        "x",
        "returns a list that counts from {x} down to 1 | counts down from {x} to 1 in a list",
        "result = []\nwhile {x} > 0:\n    result.append({x})\n    {x} = {x} - 1\nreturn result",
    ),
    spec(
        "bigger_of",
        "bigger larger_of",
        "x y",
        "returns the larger of {x} and {y} | gives the bigger number of {x} and {y}",
        "if {x} > {y}:\n    return {x}\nreturn {y}",
    ),
    spec(
        "swap",
        "swap swapped",
        "x y",
        "returns {y} and {x} as a list in swapped order | swaps {x} and {y} "
        "and returns them as a list",
        "return [{y}, {x}]",
    ),
    spec(
        "average_two",
        "middle_of mean_of",
        "x y",
        "returns the average of {x} and {y} | gives the mean of {x} and {y}",
        "return ({x} + {y}) / 2",
    ),
)
