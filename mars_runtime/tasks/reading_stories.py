"""Little fairy-tale passages and questions about them, assembled from sentences.

Knows no prompt frames and no checker. Every sentence carries one fact, and every fact can be asked
for; its rivals are the other words of the same sort in the passage.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .base import Split, article, phrase
from .pools import COLOURS, NUMBER_WORDS, people


@dataclass(frozen=True, slots=True)
class Story:
    """A passage, one question and what a right answer must and must not hold."""

    kind: str
    story: str
    question: str
    answer: str
    key: str
    rivals: tuple[str, ...]


HEROES = [
    "miller",
    "king",
    "farmer",
    "fisherman",
    "tailor",
    "baker",
    "shepherd",
    "woodcutter",
    "cook",
    "soldier",
    "princess",
    "queen",
    "prince",
    "hunter",
    "gardener",
]
ANIMALS = [
    "fox",
    "bear",
    "wolf",
    "cat",
    "dog",
    "horse",
    "goat",
    "hare",
    "mouse",
    "deer",
    "owl",
    "crow",
    "swan",
    "duck",
    "goose",
    "frog",
]
HOMES = [
    "forest",
    "village",
    "castle",
    "cottage",
    "mill",
    "valley",
    "tower",
    "cave",
    "meadow",
    "garden",
]
FINDS = [
    "ring",
    "key",
    "cup",
    "book",
    "lamp",
    "rope",
    "sword",
    "bell",
    "coin",
    "mirror",
    "stone",
    "feather",
    "box",
    "map",
    "crown",
]
SPOTS = ["well", "oak", "bridge", "river", "barn", "gate", "wall", "hill", "church", "rock"]
GIFTS = ["bread", "cheese", "honey", "apples", "milk", "nuts", "cake", "fish", "berries", "eggs"]
WISHES = {
    "it was hungry": "was hungry",
    "it was cold": "was cold",
    "it had lost its way": "had lost its way",
    "it had hurt its foot": "had hurt its foot",
    "it was afraid of the storm": "was afraid of the storm",
    "it could not sleep": "could not sleep",
}
TIMES = ["morning", "evening", "night", "winter", "spring", "summer", "autumn"]


@dataclass(frozen=True, slots=True)
class Cast:
    """The choices a passage is made of."""

    name: str
    other: str
    he: str
    him: str
    hero: str
    animal: str
    home: str
    find: str
    spot: str
    colour: str
    gift: str
    reason: str
    number: str
    time: str


def _cast(rng: random.Random, split: Split) -> Cast:
    first, second = people(rng, split, 2)
    return Cast(
        name=first.name,
        other=second.name,
        he=first.he,
        him="him" if first.he == "he" else "her",
        hero=rng.choice([h for h in HEROES if _fits(h, first.he)]),
        animal=rng.choice(ANIMALS),
        home=rng.choice(HOMES),
        find=rng.choice(FINDS),
        spot=rng.choice(SPOTS),
        colour=rng.choice(COLOURS),
        gift=rng.choice(GIFTS),
        reason=rng.choice(sorted(WISHES)),
        number=rng.choice(NUMBER_WORDS[2:]),
        time=rng.choice(TIMES),
    )


def _fits(hero: str, he: str) -> bool:
    women, men = ("princess", "queen"), ("king", "prince", "fisherman")
    return hero not in (men if he == "she" else women)


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


def _fields(cast: Cast) -> dict[str, str]:
    return {
        **{name: getattr(cast, name) for name in Cast.__slots__},
        "Name": cast.name,
        "he_poss": "his" if cast.he == "he" else "her",
        "a_hero": article(cast.hero),
        "a_home": article(cast.home),
        "a_find": article(cast.find),
        "a_colour": article(cast.colour),
        "reason_key": WISHES[cast.reason],
    }


def make_story(rng: random.Random, split: Split) -> Story:
    """Assemble a passage of four sentences and ask for one of its facts."""
    fields = _fields(_cast(rng, split))
    sentences = [
        phrase(rng, split, part[:-1], part[-1:]).format(**fields)
        for part in (OPENINGS, MIDDLES, MEETINGS, ENDINGS)
    ]
    kind = rng.choice(sorted(QUESTIONS))
    shared, held_out, answer, key, rivals = QUESTIONS[kind]
    question = phrase(rng, split, shared, (held_out,)).format(**fields)
    others = tuple(fields[rival] for rival in rivals)
    if kind == "how_long":
        others = tuple(word for word in NUMBER_WORDS[1:] if word != fields["number"])
    if kind == "colour":
        others = tuple(word for word in COLOURS if word != fields["colour"])
    if kind == "why":
        others = tuple(WISHES[w] for w in sorted(WISHES) if w != fields["reason"])
    answer = answer.format(**fields)
    return Story(kind, " ".join(sentences), question, answer, fields[key], others)
