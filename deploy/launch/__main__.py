"""``python -m lemonbus``, or ``python deploy/launch`` in a checkout that was never installed."""

import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from launch import main
else:
    from . import main

sys.exit(main())
