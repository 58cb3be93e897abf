"""The Python functions of the tasks: names, descriptions, bodies and what to call them with.

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


def _spec(kind: str, names: str, args: str, does: str, lines: str) -> Spec:
    return Spec(kind, tuple(names.split()), args, tuple(does.split(" | ")), lines)


NUMBER_SPECS = (
    _spec(
        "add", "add_{k} plus_{k}", "x", "returns {x} plus {k} | adds {k} to {x}", "return {x} + {k}"
    ),
    _spec(
        "subtract",
        "minus_{k} subtract_{k}",
        "x",
        "returns {x} minus {k} | takes {k} away from {x}",
        "return {x} - {k}",
    ),
    _spec(
        "multiply",
        "times_{k} multiply_by_{k}",
        "x",
        "returns {x} times {k} | multiplies {x} by {k}",
        "return {x} * {k}",
    ),
    _spec(
        "scale_shift",
        "scale_and_add line",
        "x",
        "returns {k} times {x} plus {m} | multiplies {x} by {k} and adds {m}",
        "return {k} * {x} + {m}",
    ),
    _spec(
        "square",
        "square squared",
        "x",
        "returns the square of {x} | squares {x}",
        "return {x} * {x}",
    ),
    _spec(
        "is_even",
        "is_even even",
        "x",
        "tells whether {x} is even | checks if {x} is even",
        "return {x} % 2 == 0",
    ),
    _spec(
        "is_odd",
        "is_odd odd",
        "x",
        "tells whether {x} is odd | checks if {x} is odd",
        "return {x} % 2 == 1",
    ),
    _spec(
        "divisible",
        "divisible_by_{k} is_multiple_of_{k}",
        "x",
        "tells whether {x} is divisible by {k} | checks if {x} is a multiple of {k}",
        "return {x} % {k} == 0",
    ),
    _spec(
        "remainder",
        "remainder_{k} mod_{k}",
        "x",
        "returns the remainder of {x} divided by {k} | gives {x} modulo {k}",
        "return {x} % {k}",
    ),
    _spec(
        "bigger_than",
        "more_than_{m} above_{m}",
        "x",
        "tells whether {x} is greater than {m} | checks if {x} is above {m}",
        "return {x} > {m}",
    ),
    _spec(
        "absolute",
        "absolute distance_to_zero",
        "x",
        "returns the absolute value of {x} | gives {x} without its sign",
        "if {x} < 0:\n    return -{x}\nreturn {x}",
    ),
    _spec(
        "clamp",
        "clamp limit",
        "x",
        "keeps {x} between {k} and {m} | limits {x} to the range from {k} to {m}",
        "if {x} < {k}:\n    return {k}\nif {x} > {m}:\n    return {m}\nreturn {x}",
    ),
    _spec(
        "sign",
        "sign sign_of",
        "x",
        "returns 1, 0 or -1 as the sign of {x} | gives the sign of {x} as 1, 0 or -1",
        "if {x} > 0:\n    return 1\nif {x} < 0:\n    return -1\nreturn 0",
    ),
    _spec(
        "factorial",
        "factorial product_up_to",
        "x",
        "returns the factorial of {x} | multiplies all numbers from 1 to {x}",
        "result = 1\nfor i in range(1, {x} + 1):\n    result = result * i\nreturn result",
    ),
    _spec(
        "fibonacci",
        "fibonacci fib",
        "x",
        "returns the Fibonacci number with index {x} | gives Fibonacci number {x}, counting from 0",
        "a = 0\nb = 1\nfor i in range({x}):\n    a, b = b, a + b\nreturn a",
    ),
    _spec(
        "sum_to",
        "sum_to add_up_to",
        "x",
        "returns the sum of the numbers from 1 to {x} | adds all numbers from 1 to {x}",
        "total = 0\nfor i in range(1, {x} + 1):\n    total = total + i\nreturn total",
    ),
    _spec(
        "countdown",
        "countdown count_down",
        "x",
        "returns a list that counts from {x} down to 1 | counts down from {x} to 1 in a list",
        "result = []\nwhile {x} > 0:\n    result.append({x})\n    {x} = {x} - 1\nreturn result",
    ),
    _spec(
        "bigger_of",
        "bigger larger_of",
        "x y",
        "returns the larger of {x} and {y} | gives the bigger number of {x} and {y}",
        "if {x} > {y}:\n    return {x}\nreturn {y}",
    ),
    _spec(
        "swap",
        "swap swapped",
        "x y",
        "returns {y} and {x} as a list in swapped order | swaps {x} and {y} "
        "and returns them as a list",
        "return [{y}, {x}]",
    ),
    _spec(
        "average_two",
        "middle_of mean_of",
        "x y",
        "returns the average of {x} and {y} | gives the mean of {x} and {y}",
        "return ({x} + {y}) / 2",
    ),
)

STRING_SPECS = (
    _spec(
        "reverse_string",
        "reverse_text backwards",
        "s",
        "returns {s} reversed | reverses the string {s}",
        "return {s}[::-1]",
    ),
    _spec(
        "upper",
        "shout to_upper",
        "s",
        "returns {s} in upper case | turns {s} into upper case",
        "return {s}.upper()",
    ),
    _spec(
        "count_letter",
        "count_{c} how_many_{c}",
        "s",
        'counts the letter "{c}" in {s} | returns how often "{c}" occurs in {s}',
        'return {s}.count("{c}")',
    ),
    _spec(
        "count_loop",
        "count_letter count_char",
        "s",
        'counts the letter "{c}" in {s} with a loop | loops over {s} and counts "{c}"',
        'count = 0\nfor letter in {s}:\n    if letter == "{c}":\n        count = count + 1\nreturn count',
    ),
    _spec(
        "repeat",
        "repeat_{k} say_{k}_times",
        "s",
        "repeats {s} {k} times | returns {s} {k} times in a row",
        "return {s} * {k}",
    ),
    _spec(
        "starts_with",
        "starts_with_{c} begins_with_{c}",
        "s",
        'tells whether {s} starts with "{c}" | checks if {s} begins with "{c}"',
        'return {s}.startswith("{c}")',
    ),
    _spec(
        "ends_with",
        "ends_with_{c} closes_with_{c}",
        "s",
        'tells whether {s} ends with "{c}" | checks if {s} ends in "{c}"',
        'return {s}.endswith("{c}")',
    ),
    _spec(
        "first_chars",
        "first_{k} take_{k}",
        "s",
        "returns the first {k} characters of {s} | keeps only the first {k} characters of {s}",
        "return {s}[:{k}]",
    ),
    _spec(
        "palindrome",
        "is_palindrome same_backwards",
        "s",
        "tells whether {s} is a palindrome | checks if {s} reads the same backwards",
        "return {s} == {s}[::-1]",
    ),
    _spec(
        "word_count",
        "word_count count_words",
        "s",
        "counts the words in {s} | returns the number of words in {s}",
        "return len({s}.split())",
    ),
    _spec(
        "replace",
        "replace_{c} mask_{c}",
        "s",
        'replaces every "{c}" in {s} with a dash | puts a dash for each "{c}" in {s}',
        'return {s}.replace("{c}", "-")',
    ),
    _spec(
        "vowels",
        "count_vowels vowels",
        "s",
        "counts the vowels in {s} | returns the number of vowels in {s}",
        'count = 0\nfor letter in {s}:\n    if letter in "aeiou":\n        count = count + 1\nreturn count',
    ),
    _spec(
        "letter_counts",
        "letter_counts count_letters",
        "s",
        "returns a dictionary that counts each letter of {s} | counts how often each letter occurs in {s}, as a dictionary",
        "counts = {{}}\nfor letter in {s}:\n    counts[letter] = counts.get(letter, 0) + 1\nreturn counts",
    ),
    _spec(
        "join_words",
        "join_words glue",
        "w",
        'joins {w} with "{p}" | puts the strings in {w} together with "{p}" between them',
        'return "{p}".join({w})',
    ),
    _spec(
        "lengths",
        "lengths word_lengths",
        "w",
        "returns the lengths of the strings in {w} | lists the length of each string in {w}",
        "return [len(word) for word in {w}]",
    ),
    _spec(
        "long_words",
        "longer_than_{k} long_words",
        "w",
        "keeps the strings in {w} longer than {k} | returns the strings in {w} with more than {k} letters",
        "return [word for word in {w} if len(word) > {k}]",
    ),
)

LIST_SPECS = (
    _spec(
        "largest",
        "largest find_max",
        "t",
        "returns the largest number in {t} | finds the maximum of {t}",
        "return max({t})",
    ),
    _spec(
        "smallest",
        "smallest find_min",
        "t",
        "returns the smallest number in {t} | finds the minimum of {t}",
        "return min({t})",
    ),
    _spec(
        "max_loop",
        "max_loop largest_loop",
        "t",
        "finds the largest number in {t} with a loop | loops over {t} and returns the maximum",
        "best = {t}[0]\nfor item in {t}:\n    if item > best:\n        best = item\nreturn best",
    ),
    _spec(
        "evens",
        "evens keep_even",
        "t",
        "keeps the even numbers in {t} | returns the even numbers of {t}",
        "return [item for item in {t} if item % 2 == 0]",
    ),
    _spec(
        "above",
        "above_{k} keep_above_{k}",
        "t",
        "keeps the numbers in {t} greater than {k} | returns the numbers of {t} that are above {k}",
        "return [item for item in {t} if item > {k}]",
    ),
    _spec(
        "add_each",
        "add_{k}_to_all raise_by_{k}",
        "t",
        "adds {k} to each number in {t} | returns {t} with {k} added to every number",
        "return [item + {k} for item in {t}]",
    ),
    _spec(
        "times_each",
        "scale_by_{k} all_times_{k}",
        "t",
        "multiplies each number in {t} by {k} | returns {t} with every number times {k}",
        "return [item * {k} for item in {t}]",
    ),
    _spec(
        "sum_squares",
        "sum_of_squares square_sum",
        "t",
        "returns the sum of the squares of {t} | squares the numbers in {t} and adds them",
        "total = 0\nfor item in {t}:\n    total = total + item * item\nreturn total",
    ),
    _spec(
        "sum_loop",
        "sum_list total_of",
        "t",
        "adds the numbers in {t} with a loop | loops over {t} and returns the sum",
        "total = 0\nfor item in {t}:\n    total = total + item\nreturn total",
    ),
    _spec(
        "count_above",
        "count_above_{k} how_many_above_{k}",
        "t",
        "counts the numbers in {t} greater than {k} | returns how many numbers of {t} are above {k}",
        "count = 0\nfor item in {t}:\n    if item > {k}:\n        count = count + 1\nreturn count",
    ),
    _spec(
        "sort_down",
        "sort_down largest_first",
        "t",
        "sorts {t} from largest to smallest | returns {t} in descending order",
        "return sorted({t}, reverse=True)",
    ),
    _spec(
        "sort_up",
        "sort_up smallest_first",
        "t",
        "sorts {t} from smallest to largest | returns {t} in ascending order",
        "return sorted({t})",
    ),
    _spec(
        "reverse_list",
        "reverse_list turn_around",
        "t",
        "returns {t} in reverse order | reverses the list {t}",
        "return {t}[::-1]",
    ),
    _spec(
        "first_last",
        "first_and_last ends",
        "t",
        "returns the first and the last item of {t} as a list | gives a list of the first and last item of {t}",
        "return [{t}[0], {t}[-1]]",
    ),
    _spec(
        "average",
        "average mean",
        "t",
        "returns the average of {t} | computes the mean of the numbers in {t}",
        "return sum({t}) / len({t})",
    ),
    _spec(
        "contains",
        "contains_{k} has_{k}",
        "t",
        "tells whether {k} is in {t} | checks if {t} contains {k}",
        "return {k} in {t}",
    ),
)

SPECS = NUMBER_SPECS + STRING_SPECS + LIST_SPECS
