"""The one thing that pyproject.toml cannot say: the source archive keeps the symbolic links of tests/_path."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist

LINKS = Path("tests/_path/kvproof")


class SdistWithLinks(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        folder = Path(base_dir) / LINKS
        folder.mkdir(parents=True, exist_ok=True)
        for link in sorted(LINKS.iterdir()):
            os.symlink(os.readlink(link), folder / link.name)


setup(cmdclass={"sdist": SdistWithLinks})
