"""Recordings of real engines: the archive, the strict reader, the replay."""
