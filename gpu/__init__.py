"""The same transitions on torch tensors."""
