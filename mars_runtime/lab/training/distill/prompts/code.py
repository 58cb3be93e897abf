"""Requests for code: functions, scripts, queries, commands, explanations and corrections.

Everything is drawn from lists of subjects and ways of asking; knows no files.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from mars_runtime.lab.training.distill.prompts import code_subjects as subjects
from mars_runtime.lab.training.distill.prompts.base import Turns

ASK = (
    "Write a {language} function that {what}.",
    "Write a function in {language} that {what}. Add comments.",
    "Can you write {language} code that {what}?",
    "How do I write a {language} function that {what}?",
    "Implement a {language} function `{name}` that {what}.",
    "I need a {language} function that {what}. Include an example.",
    "{language}: write a function that {what} and test it.",
    "Write a short {language} function that {what}. Only code, please.",
    "Show me how to write a {language} function which {what}, and explain how it works.",
    "Write a {language} function with a docstring that {what}.",
)
COMPLETE = (
    'Complete this function:\n\n```python\ndef {name}({arguments}):\n    """{sentence}."""\n```',
    "Fill in the body.\n\ndef {name}({arguments}):\n    # {sentence}",
    "Write unit tests for a Python function `{name}({arguments})` that {what}.",
    "Write the docstring of a Python function `{name}({arguments})` that {what}.",
)
SNIPPET_ASK = (
    "Explain what this code does.\n\n```{tag}\n{code}\n```",
    "What does this code print?\n\n```{tag}\n{code}\n```",
    "Add comments to this code.\n\n```{tag}\n{code}\n```",
    "Rename the variables of this code so that it reads better.\n\n```{tag}\n{code}\n```",
    "Add type hints and a docstring.\n\n```{tag}\n{code}\n```",
    "Refactor this code to make it shorter.\n\n```{tag}\n{code}\n```",
    "Find the bug in this code, if there is one, and correct it.\n\n```{tag}\n{code}\n```",
    "Rewrite this code in JavaScript.\n\n```{tag}\n{code}\n```",
    "Rewrite this code in Java.\n\n```{tag}\n{code}\n```",
)
LANGUAGES = ("Python",) * 6 + ("JavaScript",) * 3 + ("Java", "C", "C++", "Go", "Rust", "TypeScript")


def requests(draw: random.Random) -> Iterator[Turns]:
    """An endless stream of requests for code of all kinds."""
    makers = [_function] * 6 + [_completion] * 2 + [_snippet] * 2
    makers += [_query] * 2 + [_command] * 2 + [_page, _question, _script, _edit]
    while True:
        yield draw.choice(makers)(draw)


def _what(draw: random.Random) -> tuple[str, str, str]:
    """What a function does, its name and its arguments."""
    verb, names, arguments = draw.choice(subjects.ACTIONS)
    qualifier = draw.choice(subjects.QUALIFIERS) if draw.random() < 0.35 else ""
    return verb + qualifier, names, arguments


def _function(draw: random.Random) -> Turns:
    what, name, _ = _what(draw)
    language = draw.choice(LANGUAGES)
    return (draw.choice(ASK).format(language=language, what=what, name=name),)


def _completion(draw: random.Random) -> Turns:
    what, name, arguments = _what(draw)
    sentence = what[:1].upper() + what[1:]
    form = draw.choice(COMPLETE)
    return (form.format(name=name, arguments=arguments, what=what, sentence=sentence),)


def _snippet(draw: random.Random) -> Turns:
    tag, code = draw.choice(subjects.SNIPPETS)
    names = draw.sample(subjects.NAMES, 3)
    numbers = [draw.randint(2, 50) for _ in range(3)]
    filled = code.format(a=names[0], b=names[1], f=names[2], m=numbers[0], n=numbers[1])
    return (draw.choice(SNIPPET_ASK).format(tag=tag, code=filled),)


def _query(draw: random.Random) -> Turns:
    table, columns = draw.choice(subjects.TABLES)
    column, other = draw.sample(columns, 2)
    ask = draw.choice(subjects.QUERIES)
    return (ask.format(table=table, column=column, other=other, columns=", ".join(columns)),)


def _command(draw: random.Random) -> Turns:
    task = draw.choice(subjects.SHELL).format(
        ext=draw.choice(subjects.EXTENSIONS), n=draw.randint(2, 60), f=draw.choice(subjects.NAMES)
    )
    return (draw.choice(subjects.SHELL_ASK).format(task=task),)


def _page(draw: random.Random) -> Turns:
    what, topic = draw.choice(subjects.PAGES), draw.choice(subjects.TOPICS)
    return (f"Write {what.format(topic=topic)}.",)


def _question(draw: random.Random) -> Turns:
    concept = draw.choice(subjects.CONCEPTS)
    language = draw.choice(("Python", "JavaScript", "programming", "Java", "Git and the shell"))
    return (draw.choice(subjects.CONCEPT_ASK).format(concept=concept, language=language),)


def _script(draw: random.Random) -> Turns:
    task = draw.choice(subjects.SCRIPTS).format(
        ext=draw.choice(subjects.EXTENSIONS), topic=draw.choice(subjects.TOPICS)
    )
    return (f"Write a {draw.choice(('Python', 'Python', 'Node.js', 'bash'))} script that {task}.",)


def _edit(draw: random.Random) -> Turns:
    """Two turns: code is given, and then changed."""
    tag, code = draw.choice(subjects.SNIPPETS)
    names = draw.sample(subjects.NAMES, 3)
    filled = code.format(a=names[0], b=names[1], f=names[2], m=draw.randint(2, 9), n=20)
    asked = f"Write a small function named {names[2]}."
    return (asked, f"```{tag}\n{filled}\n```", draw.choice(subjects.EDITS))
