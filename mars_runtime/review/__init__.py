"""Reading many outputs by hand: sets of prompts decoded in several ways, what people and automatic
marks say of the answers, and files to take to others. Knows no page.
"""
