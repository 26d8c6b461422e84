"""The engines that drive the model: random walk, Hypothesis machine, exhaustive explorer."""
