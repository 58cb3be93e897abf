"""Chat requests: questions and wishes that have no single right answer.

Knows no model. WRITTEN are used as they are; FRAMES are filled to make more of the same kind.
"""

from __future__ import annotations

WRITTEN = (
    "My neighbour plays the drums every evening. How can I bring it up without starting a feud?",
    "Why does bread go stale faster in the fridge?",
    "I have three hours in a strange city before my train leaves. What would you do?",
    "Can you explain what inflation is to somebody who has never had a bank account?",
    "What are good reasons to keep a diary, and good reasons not to?",
    "Write a short birthday message for a colleague I hardly know.",
    "How do noise-cancelling headphones work?",
    "I keep forgetting people's names. What helps?",
    "Tell me a short story about a lighthouse keeper who is afraid of the dark.",
    "Is it better to learn the guitar from a teacher or from videos?",
    "What should I pack for a weekend of camping in October?",
    "Give me five ideas for dinner with chickpeas, each in one sentence.",
    "Why do cats knead blankets with their paws?",
    "What questions should I ask at the end of a job interview?",
)

FRAMES = {
    "Explain {} to a curious child of ten.": (
        "how a thermos keeps tea hot",
        "why the moon changes its shape",
        "what a judge does",
        "how a letter finds its way across an ocean",
        "why onions make us cry",
        "what electricity bills are for",
        "how glue sticks",
        "why some metals rust",
    ),
    "What should somebody know before they {}?": (
        "adopt an old dog",
        "buy a used bicycle",
        "move in with two friends",
        "paint a wooden floor",
        "start to keep bees",
        "sign up for a marathon",
        "repair a dripping tap",
        "take part in a jury",
    ),
    "Write a friendly reply to a friend who {}.": (
        "has failed a driving test",
        "is nervous about a first day at work",
        "asks to borrow a tent for a month",
        "has just become a grandmother",
        "wants to cancel a dinner at short notice",
        "has found a purse on a bench",
        "complains that winter never ends",
        "is moving to another country",
    ),
    "What are the advantages and drawbacks of {}?": (
        "working night shifts",
        "heating with wood",
        "living on a houseboat",
        "buying clothes second hand",
        "learning two languages at once",
        "having breakfast late",
        "paying only in cash",
        "growing vegetables on a balcony",
    ),
    "Give me a few tips on {}.": (
        "keeping a small kitchen tidy",
        "sleeping well on a long flight",
        "reading more books in a year",
        "speaking in front of forty people",
        "saving water in the garden",
        "teaching a grandparent to use a tablet",
        "photographing a friend's wedding",
        "getting over a lost chess game",
    ),
    "Tell me a very short story about {}.": (
        "a clock that runs backwards on Sundays",
        "two rival bakers in one village",
        "a robot that collects umbrellas",
        "a girl who sells maps of places that do not exist",
        "the last train of the year",
        "a fox that learned to read",
        "a letter delivered forty years late",
        "a gardener who talks to her pumpkins",
    ),
}


def further() -> list[str]:
    """Every filled frame."""
    return [frame.format(word) for frame, words in FRAMES.items() for word in words]
