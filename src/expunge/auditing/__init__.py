"""Everything that can be checked about a stored model, and a report of it that opens offline."""

from expunge.auditing.auditor import audit
from expunge.auditing.findings import Audit, Check
from expunge.auditing.report import render, write_report

__all__ = ["Audit", "Check", "audit", "render", "write_report"]
