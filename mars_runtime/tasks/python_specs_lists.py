"""The Python functions of lists of numbers; the fields are those of `python_specs`.

Knows no prompt frames and no checker.
"""

from __future__ import annotations

from .python_specs import spec

LIST_SPECS = (
    spec(
        "largest",
        "largest find_max",
        "t",
        "returns the largest number in {t} | finds the maximum of {t}",
        "return max({t})",
    ),
    spec(
        "smallest",
        "smallest find_min",
        "t",
        "returns the smallest number in {t} | finds the minimum of {t}",
        "return min({t})",
    ),
    spec(
        "max_loop",
        "max_loop largest_loop",
        "t",
        "finds the largest number in {t} with a loop | loops over {t} and returns the maximum",
        "best = {t}[0]\nfor item in {t}:\n    if item > best:\n        best = item\nreturn best",
    ),
    spec(
        "evens",
        "evens keep_even",
        "t",
        "keeps the even numbers in {t} | returns the even numbers of {t}",
        "return [item for item in {t} if item % 2 == 0]",
    ),
    spec(
        "above",
        "above_{k} keep_above_{k}",
        "t",
        "keeps the numbers in {t} greater than {k} | returns the numbers of {t} that are above {k}",
        "return [item for item in {t} if item > {k}]",
    ),
    spec(
        "add_each",
        "add_{k}_to_all raise_by_{k}",
        "t",
        "adds {k} to each number in {t} | returns {t} with {k} added to every number",
        "return [item + {k} for item in {t}]",
    ),
    spec(
        "times_each",
        "scale_by_{k} all_times_{k}",
        "t",
        "multiplies each number in {t} by {k} | returns {t} with every number times {k}",
        "return [item * {k} for item in {t}]",
    ),
    spec(
        "sum_squares",
        "sum_of_squares square_sum",
        "t",
        "returns the sum of the squares of {t} | squares the numbers in {t} and adds them",
        "total = 0\nfor item in {t}:\n    total = total + item * item\nreturn total",
    ),
    spec(
        "sum_loop",
        "sum_list total_of",
        "t",
        "adds the numbers in {t} with a loop | loops over {t} and returns the sum",
        "total = 0\nfor item in {t}:\n    total = total + item\nreturn total",
    ),
    spec(
        "count_above",
        "count_above_{k} how_many_above_{k}",
        "t",
        "counts the numbers in {t} greater than {k} | "
        "returns how many numbers of {t} are above {k}",
        "count = 0\nfor item in {t}:\n    if item > {k}:\n        count = count + 1\nreturn count",
    ),
    spec(
        "sort_down",
        "sort_down largest_first",
        "t",
        "sorts {t} from largest to smallest | returns {t} in descending order",
        "return sorted({t}, reverse=True)",
    ),
    spec(
        "sort_up",
        "sort_up smallest_first",
        "t",
        "sorts {t} from smallest to largest | returns {t} in ascending order",
        "return sorted({t})",
    ),
    spec(
        "reverse_list",
        "reverse_list turn_around",
        "t",
        "returns {t} in reverse order | reverses the list {t}",
        "return {t}[::-1]",
    ),
    spec(
        "first_last",
        "first_and_last ends",
        "t",
        "returns the first and the last item of {t} as a list | "
        "gives a list of the first and last item of {t}",
        "return [{t}[0], {t}[-1]]",
    ),
    spec(
        "average",
        "average mean",
        "t",
        "returns the average of {t} | computes the mean of the numbers in {t}",
        "return sum({t}) / len({t})",
    ),
    spec(
        "contains",
        "contains_{k} has_{k}",
        "t",
        "tells whether {k} is in {t} | checks if {t} contains {k}",
        "return {k} in {t}",
    ),
)
