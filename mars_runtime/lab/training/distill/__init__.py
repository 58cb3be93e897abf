"""Texts to train an adapter on: prompts of many kinds and the base model's own answers."""
