"""Little sentences the format tasks are written with.

Knows no constraint; every fact is a verb phrase about one subject and holds no comma.
"""

from __future__ import annotations

from .base import word_list

FACTS: dict[str, tuple[str, ...]] = {
    "fox": ("lives in the forest", "has red fur", "hunts mice at night"),
    "cat": ("sleeps in the sun", "has soft fur", "catches mice"),
    "dog": ("guards the house", "likes to run", "barks at strangers"),
    "horse": ("pulls the cart", "eats hay", "runs across the field"),
    "cow": ("gives milk", "eats grass", "stands in the meadow"),
    "hen": ("lays eggs", "eats corn", "lives in the yard"),
    "owl": ("flies at night", "has big eyes", "sits in the old tree"),
    "bee": ("makes honey", "flies from flower to flower", "lives in a hive"),
    "fish": ("swims in the river", "has shiny scales", "hides under a stone"),
    "frog": ("jumps into the pond", "has green skin", "sings in the evening"),
    "bear": ("sleeps all winter", "likes honey", "has thick brown fur"),
    "baker": ("makes bread", "gets up early", "works near a hot oven"),
    "farmer": ("works in the field", "feeds the animals", "has a red barn"),
    "king": ("wears a crown", "lives in a castle", "has many servants"),
    "miller": ("grinds the corn", "lives by the river", "sells flour"),
    "sailor": ("works on a ship", "knows the stars", "tells old stories"),
    "gardener": ("waters the flowers", "plants small trees", "has a green hat"),
    "teacher": ("helps the children", "reads from a book", "writes on the board"),
}
MANNERS = word_list("old young small big good quiet clever happy")  # what any subject may be
STARTERS = word_list("Today Often Sometimes Now Here Usually")
ENDINGS = {
    "every day": "day",
    "in the morning": "morning",
    "all year": "year",
    "in spring": "spring",
    "before noon": "noon",
    "in the village": "village",
    "near the hill": "hill",
}
PHRASES = word_list(
    "good morning;well done;red fox;thank you;good night;hello there;green tree;come "
    "home;little star;sweet dreams;happy day;open the door;blue sky;old oak;warm "
    "bread;cold snow",
    sep=";",
)
CITIES = word_list(
    "Paris London Rome Berlin Oslo Madrid Vienna Dublin Athens Bergen Boston Cairo Chicago Delhi "
    "Florence Geneva Hamburg Kyoto Lima Lisbon Lyon Milan Moscow Munich Naples Prague Sydney Tokyo "
    "Turin Venice Warsaw Zurich"
)
JOBS = word_list(
    "baker farmer miller sailor teacher gardener barber butcher carpenter cook dentist doctor "
    "driver fisher hunter judge lawyer nurse painter pilot potter singer tailor waiter weaver "
    "writer"
)
