"""Claims about functions of `kvproof.core`, one file for each part of the model, in CrossHair's assert style."""
