"""The Batch tab: several prompts at once, by one method or two in turn."""
