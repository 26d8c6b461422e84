"""`python -m kvproof.spec` is the same as `kvproof`."""

import sys

from kvproof.spec.cli import main

sys.exit(main())
