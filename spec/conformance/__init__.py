"""Other implementations under the laws: what they show, a shadow that follows them, a verdict per law."""
