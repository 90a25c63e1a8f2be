"""What tests, the audit and benchmarks share; nothing of it is shipped."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
"""The checkout."""
