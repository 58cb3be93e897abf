"""Sets of prompts with the answers of several methods, their automatic checks and judgements."""
