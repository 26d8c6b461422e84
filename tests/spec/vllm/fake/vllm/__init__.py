"""A toy with the names of vLLM, for tests of the recorder that need no release."""

__version__ = "9.9.9"
