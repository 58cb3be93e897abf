"""The Python functions of strings; the fields are those of `python_specs`.

Knows no prompt frames and no checker.
"""

from __future__ import annotations

from .python_specs import spec

STRING_SPECS = (
    spec(
        "reverse_string",
        "reverse_text backwards",
        "s",
        "returns {s} reversed | reverses the string {s}",
        "return {s}[::-1]",
    ),
    spec(
        "upper",
        "shout to_upper",
        "s",
        "returns {s} in upper case | turns {s} into upper case",
        "return {s}.upper()",
    ),
    spec(
        "count_letter",
        "count_{c} how_many_{c}",
        "s",
        'counts the letter "{c}" in {s} | returns how often "{c}" occurs in {s}',
        'return {s}.count("{c}")',
    ),
    spec(
        "count_loop",
        "count_letter count_char",
        "s",
        'counts the letter "{c}" in {s} with a loop | loops over {s} and counts "{c}"',
        "count = 0\n"
        'for letter in {s}:\n    if letter == "{c}":\n        count = count + 1\nreturn count',
    ),
    spec(
        "repeat",
        "repeat_{k} say_{k}_times",
        "s",
        "repeats {s} {k} times | returns {s} {k} times in a row",
        "return {s} * {k}",
    ),
    spec(
        "starts_with",
        "starts_with_{c} begins_with_{c}",
        "s",
        'tells whether {s} starts with "{c}" | checks if {s} begins with "{c}"',
        'return {s}.startswith("{c}")',
    ),
    spec(
        "ends_with",
        "ends_with_{c} closes_with_{c}",
        "s",
        'tells whether {s} ends with "{c}" | checks if {s} ends in "{c}"',
        'return {s}.endswith("{c}")',
    ),
    spec(
        "first_chars",
        "first_{k} take_{k}",
        "s",
        "returns the first {k} characters of {s} | keeps only the first {k} characters of {s}",
        "return {s}[:{k}]",
    ),
    spec(
        "palindrome",
        "is_palindrome same_backwards",
        "s",
        "tells whether {s} is a palindrome | checks if {s} reads the same backwards",
        "return {s} == {s}[::-1]",
    ),
    spec(
        "word_count",
        "word_count count_words",
        "s",
        "counts the words in {s} | returns the number of words in {s}",
        "return len({s}.split())",
    ),
    spec(
        "replace",
        "replace_{c} mask_{c}",
        "s",
        'replaces every "{c}" in {s} with a dash | puts a dash for each "{c}" in {s}',
        'return {s}.replace("{c}", "-")',
    ),
    spec(
        "vowels",
        "count_vowels vowels",
        "s",
        "counts the vowels in {s} | returns the number of vowels in {s}",
        "count = 0\n"
        'for letter in {s}:\n    if letter in "aeiou":\n        count = count + 1\nreturn count',
    ),
    spec(
        "letter_counts",
        "letter_counts count_letters",
        "s",
        "returns a dictionary that counts each letter of {s} | "
        "counts how often each letter occurs in {s}, as a dictionary",
        "counts = {{}}\n"
        "for letter in {s}:\n    counts[letter] = counts.get(letter, 0) + 1\nreturn counts",
    ),
    spec(
        "join_words",
        "join_words glue",
        "w",
        'joins {w} with "{p}" | puts the strings in {w} together with "{p}" between them',
        'return "{p}".join({w})',
    ),
    spec(
        "lengths",
        "lengths word_lengths",
        "w",
        "returns the lengths of the strings in {w} | lists the length of each string in {w}",
        "return [len(word) for word in {w}]",
    ),
    spec(
        "long_words",
        "longer_than_{k} long_words",
        "w",
        "keeps the strings in {w} longer than {k} | "
        "returns the strings in {w} with more than {k} letters",
        "return [word for word in {w} if len(word) > {k}]",
    ),
)
