"""Real requests to click, family by family, for checkpoints that know how to chat. Data alone.

Chosen by what SmolLM2-135M-Instruct makes of them, greedy: those it answers well enough to be read,
and, marked as such, some that it gets wrong. None of its answers has fewer than 60 tokens
(``python -m app.examples.measure``).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """The words on its button, its prompts, whether they are more than a small model can do, and
    what to try with them."""

    label: str
    prompts: tuple[str, ...]
    is_too_hard: bool = False
    remark: str = ""


LIBRARY = (
    "The public library on Harbour Street will close for eleven weeks from the first of March so "
    "that its roof and heating can be replaced. During that time the children's section moves to "
    "the old post office, which will open from noon to six on weekdays. Books that fall due while "
    "the building is closed are renewed automatically, and no fines are charged. The council says "
    "the work will cut the heating bill by about a third."
)
SWIFTS = (
    "Swifts spend most of their lives in the air. They eat, drink, gather feathers for the nest "
    "and even sleep on the wing. They come to towns because old walls and roofs offer the narrow "
    "holes they like to breed in. Renovation closes those holes, often in winter, when nobody "
    "remembers that birds lived there. A hollow brick costs little and can be built into a new "
    "wall in minutes."
)
BOOK = (
    'title "Dune", author "Frank Herbert", year 1965, pages 612, language English, publisher '
    '"Chilton Books", price 12.50, genres science fiction and adventure'
)
MAIL = (
    "Hi Tom, can't make it to the meeting tomorrow because I'm sick. Can we do it next week? "
    "Thanks, Ana"
)

REQUESTS: dict[str, Family] = {
    "explain": Family(
        "Explain",
        (
            "Why is the sky blue?",
            "What is photosynthesis? Explain it in simple words.",
            "Why is sleep important?",
            "How do plants make their food?",
        ),
    ),
    "summarise": Family(
        "Summarise",
        (
            f"Summarize this in two sentences.\n\n{LIBRARY}",
            f"Summarize the following text in three bullet points.\n\n{SWIFTS}",
        ),
    ),
    "extract": Family("JSON", (f"Write a JSON object that describes a book: {BOOK}.",)),
    "rewrite": Family("Rewrite", (f"Make this email more formal: {MAIL}",)),
    "code": Family(
        "Code",
        (
            "Write a Python class for a bank account with methods to deposit, withdraw and show "
            "the balance.",
            "Write a Python function that checks whether a word is a palindrome. Add a docstring "
            "and two examples.",
        ),
    ),
    "sum": Family(
        "Sum",
        ("What is half of 84? Explain it step by step.",),
    ),
    "list": Family(
        "List",
        (
            "List three benefits of exercise, and explain each.",
            "List five tips for sleeping better, and explain each.",
        ),
    ),
    "tell": Family(
        "Tale",
        (
            "Write a short tale about a fox who learns to paint.",
            "Tell me a short story about a lighthouse keeper who is afraid of the dark.",
        ),
    ),
    "bold": Family(
        "Too bold",
        ("Write a JSON list of three fruits, each with name, colour and price.",),
        remark="Then run it without Lossless at τ 0.5: see what becomes of the text.",
    ),
    "translate": Family(
        "Translate",
        ("Translate into French: Good morning! I would like a coffee and a croissant, please.",),
        is_too_hard=True,
    ),
    "fail": Family(
        "Fails at",
        (
            "What is 347 times 28? Explain it step by step.",
            "Is 91 a prime number? Explain why.",
            "Who won the football World Cup in 2022? Tell me about the final.",
            "All roses are flowers. Some flowers fade quickly. Do all roses fade quickly? Explain "
            "your reasoning.",
            "Sort these numbers from small to large: 42, 7, 19, 88, 3, 56, 21.",
        ),
        is_too_hard=True,
    ),
}
