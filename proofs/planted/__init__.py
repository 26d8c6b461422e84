"""Faulty twins: rebindings of functions of `kvproof.core` under which claims must be refuted."""
