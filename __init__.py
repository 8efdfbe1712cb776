"""Plans collective communication as explicit optimization models, proves each plan, and runs it."""

from __future__ import annotations
