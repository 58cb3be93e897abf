"""Sets of prompts answered with several methods, automatic checks and people's judgements of the
answers, and exports.
"""
