"""Code requests: functions to write, to explain and to mend.

Knows no model and runs no code. WRITTEN are used as they are; the rest are made from FRAMES.
"""

from __future__ import annotations

WRITTEN = (
    "Write a Python function that returns the second largest number in a list, or None if there "
    "is none.",
    "Write a JavaScript function that groups an array of objects by one of their keys.",
    "What does this Python line do?\n\nresult = {word: len(word) for word in set(text.split())}",
    "Find the mistake in this function and correct it:\n\ndef average(numbers):\n    total = 0\n"
    "    for n in numbers:\n        total =+ n\n    return total / len(numbers)",
    "Write an SQL query that lists the five customers with the most orders in 2023.",
    "Write a Python class for a bank account with deposit, withdraw and a balance that can't "
    "become negative.",
    "How do I read a CSV file in Python and print the sum of its third column?",
    "Rewrite this loop as a list comprehension:\n\nsquares = []\nfor i in range(20):\n"
    "    if i % 3 == 0:\n        squares.append(i * i)",
    "Write a shell command that finds all files larger than 100 MB in the current folder, and "
    "explain each part.",
    "Write a Python function that checks whether the brackets (), [] and {} in a text are "
    "balanced.",
    "Explain the difference between a stack and a queue, with a short example in Python.",
    "Write an HTML page with a form that asks for a name and an e-mail address.",
    "Write tests with pytest for a function slugify(text) that turns titles into URL parts.",
    "Write a C function that counts the vowels in a string.",
)

FRAMES = {
    "Write a Python function that {}.": (
        "turns seconds into hours, minutes and seconds",
        "removes repeated lines from a text and keeps their order",
        "says whether a year is a leap year",
        "merges two sorted lists into one",
        "finds the longest word in a sentence",
        "rotates a list by k places",
        "counts how often each letter occurs in a text",
        "transposes a matrix given as a list of lists",
        "splits a list into chunks of n items",
        "computes the greatest common divisor of two numbers",
        "converts a Roman numeral into a number",
        "flattens a list of nested lists",
    ),
    "Write a JavaScript function that {}.": (
        "shuffles an array",
        "formats a price with two decimals and a currency sign",
        "waits for a number of milliseconds and returns a promise",
        "returns the parameters of a URL as an object",
        "capitalises the first letter of every word",
        "removes all falsy values from an array",
        "debounces another function",
        "sums the numbers in a nested array",
    ),
    "How would you {} in Python? Give a short example with comments.": (
        "sort a list of dictionaries by two keys",
        "read a JSON file and change one value",
        "measure how long a function takes",
        "write a generator of prime numbers",
        "parse dates such as 03.11.2024",
        "download a page and save it to a file",
        "use a dataclass for points in the plane",
        "catch an error and try again three times",
    ),
    "Write an SQL query that {}.": (
        "finds all books that were never lent",
        "counts the employees of each department",
        "lists the orders of the last thirty days",
        "joins a table of pupils with a table of marks",
        "deletes rows that occur twice",
        "gives the average price of each category above 20",
    ),
    "Write a small command-line program in {} that asks for numbers until the user types 'stop' "
    "and then prints their sum.": ("Python", "Java", "C", "Ruby", "Go", "Rust"),
    "Explain what {} means in programming, with one example.": (
        "recursion",
        "a race condition",
        "immutability",
        "a hash table",
        "an off-by-one error",
        "dependency injection",
        "big O notation",
        "a closure",
    ),
}


def further() -> list[str]:
    """Every filled frame."""
    return [frame.format(word) for frame, words in FRAMES.items() for word in words]
