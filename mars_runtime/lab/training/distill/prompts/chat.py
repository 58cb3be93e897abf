"""Everyday questions and requests, alone and in short conversations, drawn from lists of subjects.

They fill what collected instructions leave: plain questions, as visitors type them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from mars_runtime.lab.training.distill.prompts.base import Turns

SUBJECTS = (
    "the sky", "rainbows", "volcanoes", "the moon", "black holes", "gravity", "the ocean tides",
    "photosynthesis", "the water cycle", "dinosaurs", "bees", "honey", "chocolate", "coffee", "tea",
    "bread", "cheese", "sleep", "dreams", "memory", "the human heart", "vaccines", "vitamins",
    "running", "yoga", "swimming", "football", "chess", "the Olympic Games", "ancient Rome",
    "ancient Egypt", "the Middle Ages", "the Renaissance", "the Industrial Revolution",
    "World War II", "the French Revolution", "democracy", "money", "inflation", "the stock market",
    "taxes", "insurance", "electric cars", "bicycles", "aeroplanes", "trains", "bridges",
    "computers", "the internet", "artificial intelligence", "robots", "batteries", "solar power",
    "wind power", "nuclear energy", "climate change", "recycling", "forests", "deserts", "rivers",
    "mountains", "earthquakes", "hurricanes", "snow", "lightning", "whales", "elephants", "cats",
    "dogs", "birds", "butterflies", "spiders", "sharks", "penguins", "trees", "flowers", "gardens",
    "tomatoes", "potatoes", "rice", "pasta", "pizza", "soup", "salads", "spices", "music", "jazz",
    "the piano", "the guitar", "painting", "photography", "poetry", "novels", "theatre", "films",
    "language", "grammar", "mathematics", "fractions", "geometry", "statistics", "chemistry",
    "atoms", "magnets", "sound", "light", "colours", "time", "calendars", "friendship", "happiness",
    "stress", "anger", "courage", "honesty", "leadership", "teamwork", "education", "teachers",
    "job interviews", "holidays", "birthdays", "weddings", "Paris", "Japan", "Brazil", "Africa",
    "Antarctica", "space travel", "Mars", "the planets", "stars", "telescopes", "maps", "compasses",
)  # fmt: skip
QUESTIONS = (
    "What is interesting about {s}?",
    "Tell me about {s}.",
    "Explain {s} to a five-year-old.",
    "Give me five facts about {s}.",
    "Why do people care about {s}?",
    "What are the advantages and disadvantages of {s}?",
    "Write a short paragraph about {s}.",
    "Write a poem about {s}.",
    "Write a short story about {s}.",
    "What should a beginner know about {s}?",
    "How has our knowledge of {s} changed over time?",
    "Describe {s} in three sentences.",
    "What questions could I ask an expert on {s}?",
    "Make a list of ten words about {s}.",
    "Write a quiz with four questions about {s}.",
    "Plan a lesson on {s} for primary school.",
    "Write a tweet about {s}.",
    "Compare {s} and {t}.",
    "What do {s} and {t} have in common?",
    "Explain in simple words how {s} and {t} are connected.",
    "Write an e-mail to a friend about {s}.",
    "What are common misconceptions about {s}?",
    "Give me three book titles about {s}.",
    "How would you describe {s} to an alien?",
    "Write a dialogue between two people who talk about {s}.",
    "Suggest a slogan for a campaign about {s}.",
    "What is the history of {s}?",
    "Is it true that {s} matter more than {t}?",
    "Write the introduction of an essay about {s}.",
)
ADVICE = (
    "fall asleep faster", "learn a new language", "save money", "cook rice", "boil an egg",
    "write a CV", "prepare for an interview", "make new friends", "stop procrastinating",
    "start running", "grow tomatoes", "plan a trip", "write a thank-you letter", "clean a kitchen",
    "read more books", "give a speech", "study for an exam", "calm down", "train a puppy",
    "bake bread", "make pancakes", "eat more vegetables", "remember names", "take good photos",
    "choose a laptop", "apologise to a friend", "get rid of a cold", "organise my desk",
    "drink more water", "write a novel", "learn to swim", "play the guitar", "remove a stain",
    "set goals", "make a budget", "improve my handwriting", "host a party", "pack a suitcase",
)  # fmt: skip
ADVICE_ASK = (
    "How can I {s}?",
    "How do I {s}?",
    "Give me some tips to {s}.",
    "I want to {s}. Where do I start?",
    "Make a step-by-step plan that helps me to {s}.",
    "What mistakes do people make when they try to {s}?",
    "I have only ten minutes a day. How can I {s}?",
    "Write a checklist for someone who wants to {s}.",
)
GREETINGS = ("Hi!", "Hello, how are you?", "Hey there", "Good morning!", "Who are you?")
REPLIES = (
    "Hello! How can I help you today?",
    "Hi there! What can I do for you?",
    "I'm SmolLM, an AI assistant. What would you like to know?",
)


def requests(draw: random.Random) -> Iterator[Turns]:
    """An endless stream of everyday requests; one in eight stands in a conversation."""
    while True:
        asked = _request(draw)
        if draw.random() < 0.125:
            yield (draw.choice(GREETINGS), draw.choice(REPLIES), asked)
        else:
            yield (asked,)


def _request(draw: random.Random) -> str:
    if draw.random() < 0.2:
        return draw.choice(ADVICE_ASK).format(s=draw.choice(ADVICE))
    s, t = draw.sample(SUBJECTS, 2)
    return draw.choice(QUESTIONS).format(s=s, t=t)
