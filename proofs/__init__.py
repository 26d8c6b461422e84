"""Contracts and lemmas about the model, proved by CrossHair and Z3."""
