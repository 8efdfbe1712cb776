"""One self-contained page about plans: what they are worth, why, and what they do."""

from __future__ import annotations

from .page import report_page, write_report

__all__ = ["report_page", "write_report"]
