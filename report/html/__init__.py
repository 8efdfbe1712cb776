"""Self-contained HTML reports on plans."""

from .page import report_page, write_report

__all__ = ["report_page", "write_report"]
