"""Files of other projects, none of which is part of collopt: real dumps, traces and inputs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SAMPLES = "COLLOPT_SAMPLES"
"""Environment variable: a folder that holds them."""


def sample(name: str) -> Path:
    """Return one of them, or skip the test."""
    path = Path(os.environ.get(SAMPLES, "")) / name
    if SAMPLES not in os.environ or not path.exists():
        pytest.skip(f"set {SAMPLES} to a folder with {name}, a file of another project")
    return path
