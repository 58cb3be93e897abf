"""The sentences of the little tales and the questions that ask for their facts.

Knows no words to fill in; the last sentence of each part is held out for evaluation.
"""

from __future__ import annotations

OPENINGS = (
    "Once upon a time {a_hero} named {name} lived in {a_home}.",
    "Long ago there was {a_hero} called {name} who lived in {a_home}.",
    "There once lived {a_hero} in {a_home}, and {he_poss} name was {name}.",
    "In {a_home} lived {a_hero} whose name was {name}.",
    "Many years ago {name}, {a_hero}, had a house in {a_home}.",
)
MIDDLES = (
    "One {time} {he} found {a_find} near the {spot}.",
    "Early one {time}, {he} saw {a_find} lying by the {spot}.",
    "One {time} {a_find} lay by the {spot}, and {name} picked it up.",
    "It was {time} when {he} came upon {a_find} by the {spot}.",
)
MEETINGS = (
    "On the way home {he} met {a_colour} {animal} that was crying because {reason}.",
    "Then {a_colour} {animal} came to {him} and wept because {reason}.",
    "Soon {he} saw {a_colour} {animal}, and it was sad because {reason}.",
)
ENDINGS = (
    "{Name} gave it {gift}, and {other} let it stay for {number} days.",
    "{Name} fed it with {gift}, and for {number} days it slept in the house of {other}.",
    "So {he} gave it some {gift}, and it stayed with {other} for {number} days.",
)

# kind: (shared questions, held-out question, answer, key field, rival fields)
QUESTIONS: dict[str, tuple[tuple[str, ...], str, str, str, tuple[str, ...]]] = {
    "who": (
        ("Who found the {find}?", "Which person found the {find}?", "Who picked up the {find}?"),
        "Who was it that found the {find}?",
        "{name} found the {find}.",
        "name",
        ("other",),
    ),
    "where_lived": (
        (
            "Where did {name} live?",
            "In what place did {name} live?",
            "Where was the home of {name}?",
        ),
        "Where was {name} living?",
        "{name} lived in {a_home}.",
        "home",
        ("spot",),
    ),
    "what_job": (
        ("Who was {name}?", "What was {name}?", "What kind of person was {name}?"),
        "What did {name} do for a living?",
        "{name} was {a_hero}.",
        "hero",
        ("animal", "other"),
    ),
    "what_found": (
        (
            "What did {name} find?",
            "What was lying near the {spot}?",
            "Which thing did {name} find?",
        ),
        "What did {name} find near the {spot}?",
        "{name} found {a_find} near the {spot}.",
        "find",
        ("gift", "animal"),
    ),
    "where_found": (
        ("Where was the {find}?", "Where did {name} find the {find}?", "Where did the {find} lie?"),
        "In what place was the {find}?",
        "The {find} was near the {spot}.",
        "spot",
        ("home",),
    ),
    "animal": (
        ("Which animal did {name} meet?", "What animal was sad?", "What animal came to {name}?"),
        "Which animal was it that {name} met?",
        "It was {a_colour} {animal}.",
        "animal",
        ("find", "gift"),
    ),
    "colour": (
        (
            "What colour was the {animal}?",
            "Which colour had the {animal}?",
            "What was the colour of the {animal}?",
        ),
        "The {animal} had what colour?",
        "The {animal} was {colour}.",
        "colour",
        ("find", "gift"),
    ),
    "why": (
        ("Why was the {animal} sad?", "Why did the {animal} cry?", "What made the {animal} sad?"),
        "For what reason was the {animal} sad?",
        "The {animal} was sad because {reason}.",
        "reason_key",
        (),
    ),
    "gift": (
        (
            "What did {name} give to the {animal}?",
            "What did the {animal} get from {name}?",
            "What did the {animal} eat?",
        ),
        "Which food did {name} give to the {animal}?",
        "{name} gave it {gift}.",
        "gift",
        ("find",),
    ),
    "how_long": (
        (
            "How long did the {animal} stay?",
            "How many days did the {animal} stay?",
            "For how many days was it there?",
        ),
        "How many days did it stay there?",
        "It stayed for {number} days.",
        "number",
        (),
    ),
    "with_whom": (
        (
            "With whom did the {animal} stay?",
            "Who let the {animal} stay?",
            "In whose house was the {animal}?",
        ),
        "Who gave the {animal} a place to stay?",
        "The {animal} stayed with {other}.",
        "other",
        ("name",),
    ),
}
# kind: the number of the sentence, from 0, that tells what is asked
ASKED = {
    "where_lived": 0,
    "what_job": 0,
    "who": 1,
    "what_found": 1,
    "where_found": 1,
    "animal": 2,
    "colour": 2,
    "why": 2,
    "gift": 3,
    "how_long": 3,
    "with_whom": 3,
}
