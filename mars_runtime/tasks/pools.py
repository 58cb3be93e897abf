"""The words tasks are made of: things, places, colours, topics, and people to pick from.

Knows no task. Pools whose content is arbitrary are wide, so that it has to be copied.
"""

from __future__ import annotations

import random

from .base import Split, word_list
from .names import EVAL_PEOPLE, TRAIN_PEOPLE, Person

# singular, plural: small things that can be counted, given and bought
THINGS = tuple(
    tuple(pair.split("/"))
    for pair in word_list(
        "apple/apples pear/pears plum/plums pen/pens book/books ball/balls stamp/stamps "
        "marble/marbles card/cards coin/coins shell/shells stone/stones egg/eggs nut/nuts "
        "cookie/cookies cake/cakes button/buttons flower/flowers key/keys candle/candles "
        "cup/cups toy/toys ribbon/ribbons lemon/lemons "
        "bead/beads brush/brushes feather/feathers ring/rings bell/bells map/maps "
        "sock/socks pencil/pencils plate/plates spoon/spoons nail/nails "
        "whistle/whistles drum/drums flute/flutes kite/kites doll/dolls mask/masks "
        "letter/letters ticket/tickets medal/medals badge/badges peach/peaches cherry/cherries "
        "potato/potatoes onion/onions carrot/carrots acorn/acorns loaf/loaves muffin/muffins "
        "scarf/scarves glove/gloves needle/needles"
    )
)
CONTAINERS = word_list(
    "boxes bags baskets jars crates sacks packs bowls tins trays pots cases chests drawers buckets "
    "barrels bins cartons pouches trunks parcels hampers pails tubs cans casks"
)
COLOURS = word_list(
    "red blue green yellow white black brown grey pink purple orange silver golden violet crimson "
    "scarlet turquoise beige maroon amber ivory copper bronze tan navy olive teal indigo"
)
PLACES = word_list(
    "garden kitchen barn forest market tower mill cellar castle village school library "
    "stable bakery harbour cottage attic church garage meadow orchard palace theatre museum "
    "station workshop tavern temple vineyard valley cave shed park hall chapel hospital hotel "
    "yard field inn"
)

TOPICS: dict[str, tuple[str, ...]] = {
    "fruits": word_list("apple pear plum cherry lemon peach grape banana orange melon fig mango"),
    "animals": word_list("fox bear wolf cat dog horse cow sheep goat hare mouse deer"),
    "birds": word_list("owl crow swan duck goose eagle robin hen dove heron sparrow raven"),
    "colours": word_list("red blue green yellow white black brown grey pink purple orange gold"),
    "tools": word_list("hammer saw axe spade rake knife drill file broom needle shovel chisel"),
    "vegetables": word_list(
        "carrot onion potato cabbage bean pea leek turnip pumpkin radish cucumber beet"
    ),
    "clothes": word_list("hat coat shirt shoe glove scarf dress sock boot belt cap skirt"),
    "flowers": word_list(
        "rose lily tulip daisy violet poppy iris orchid lilac jasmine clover primrose"
    ),
    "trees": word_list("oak pine birch elm ash maple willow beech cedar fir poplar linden"),
    "furniture": word_list("chair table bed desk shelf sofa bench stool lamp mirror chest cradle"),
}
SINGULAR = {
    "fruits": "fruit",
    "animals": "animal",
    "birds": "bird",
    "colours": "colour",
    "tools": "tool",
    "vegetables": "vegetable",
    "clothes": "piece of clothing",
    "flowers": "flower",
    "trees": "tree",
    "furniture": "piece of furniture",
}
NUMBER_WORDS = word_list("zero one two three four five six seven eight nine ten")


def people(rng: random.Random, split: Split, count: int) -> list[Person]:
    """Pick different people; half of the evaluation prompts use names never trained on."""
    if split == "eval" and rng.random() < 0.5:
        return rng.sample(EVAL_PEOPLE, count)
    return rng.sample(TRAIN_PEOPLE, count)


def plural(noun: str) -> str:
    """The plural of a noun from the pools."""
    irregular = {"mouse": "mice", "goose": "geese", "sheep": "sheep", "deer": "deer"}
    irregular |= {"wolf": "wolves", "knife": "knives", "shelf": "shelves", "potato": "potatoes"}
    irregular |= {"mango": "mangoes"}
    if noun in irregular:
        return irregular[noun]
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"
