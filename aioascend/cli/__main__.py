"""`python -m aioascend.cli` is the `aioascend` command."""

import sys

from . import main

sys.exit(main())
