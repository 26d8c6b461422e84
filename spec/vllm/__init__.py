"""vLLM under test: releases, the process their code runs in, generated runs, verdicts. Nothing here imports vLLM itself."""
