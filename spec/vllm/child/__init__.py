"""Code that runs in the process of a vLLM release; nothing of kvproof outside this folder is imported."""
