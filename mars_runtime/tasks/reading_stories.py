"""Little fairy-tale passages and questions about them, assembled from sentences.

Knows no prompt frames and no checker. Every sentence carries one fact, and every fact can be asked
for; its rivals are the other words of the same sort in the passage.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .base import Split, article, phrase, word_list
from .pools import COLOURS, NUMBER_WORDS, people
from .reading_sentences import ASKED, ENDINGS, MEETINGS, MIDDLES, OPENINGS, QUESTIONS


@dataclass(frozen=True, slots=True)
class Story:
    """A passage, one question and what a right answer must and must not hold.

    `quote` is the sentence that holds the answer, or empty where only a pronoun stands in it.
    """

    kind: str
    story: str
    question: str
    quote: str
    answer: str
    key: str
    rivals: tuple[str, ...]


HEROES = word_list(
    "miller king farmer fisherman tailor baker shepherd woodcutter cook soldier princess "
    "queen prince hunter gardener carpenter weaver potter blacksmith sailor painter teacher "
    "doctor merchant musician knight poet clockmaker ferryman innkeeper goldsmith"
)
ANIMALS = word_list(
    "fox bear wolf cat dog horse goat hare mouse deer owl crow swan duck goose frog "
    "badger beaver camel donkey eagle falcon hedgehog heron lamb lion lizard monkey otter parrot "
    "pony rabbit raven sheep sparrow squirrel tiger toad turtle weasel"
)
HOMES = word_list(
    "forest village castle cottage mill valley tower cave meadow garden palace town city harbour "
    "monastery hut tent cabin manor fortress farmhouse desert swamp jungle orchard vineyard"
)
FINDS = word_list(
    "ring key cup book lamp rope sword bell coin mirror stone feather box map crown basket brush "
    "button candle chain comb drum flute glove hammer hat helmet jar kite ladder letter mask medal "
    "needle pearl pot purse ribbon scarf shell shoe spoon whistle"
)
SPOTS = word_list(
    "well oak bridge river barn gate wall hill church rock pond lake stream fence hedge path road "
    "shore cliff stable statue waterfall willow fountain shed ditch"
)
GIFTS = word_list(
    "bread cheese honey apples milk nuts cake fish berries eggs soup corn pears plums carrots "
    "porridge butter grapes cherries beans rice pie salt hay seeds figs melon cabbage cream"
)
WISHES = {
    "it was hungry": "was hungry",
    "it was cold": "was cold",
    "it had lost its way": "had lost its way",
    "it had hurt its foot": "had hurt its foot",
    "it was afraid of the storm": "was afraid of the storm",
    "it could not sleep": "could not sleep",
    "it had no friends": "had no friends",
    "it had eaten too much": "had eaten too much",
    "it had lost its mother": "had lost its mother",
    "it missed its home": "missed its home",
    "it was very tired": "was very tired",
    "it could not find water": "could not find water",
}
TIMES = word_list("morning evening night winter spring summer autumn")


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
    quote = sentences[ASKED[kind]]
    if fields[key] not in quote:
        quote = ""
    return Story(kind, " ".join(sentences), question, quote, answer, fields[key], others)
