"""Files of prompts, and sets with the answers of several methods and automatic checks."""
