"""Deployments: real configurations as data, each number with its source, and what the model makes of them."""
