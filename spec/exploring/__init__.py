"""The exhaustive explorer: all behaviours of small configurations, up to the names of blocks, requests and tokens."""
