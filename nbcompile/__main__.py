"""``python -m nbcompile``: the command (:mod:`nbcompile.cli`)."""

import sys

from nbcompile.cli import main

sys.exit(main())
