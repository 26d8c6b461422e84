"""Lemmas that Z3 proves about formulas; a test ties each formula to the function of `kvproof.core` that it stands for."""
