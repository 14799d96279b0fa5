"""What holds for all tests."""

from __future__ import annotations

import os

# Every worker and every command that a test starts would compile all modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
