"""Everything that can be checked about a stored model, and a report of it that opens offline."""

from expunge.auditing.auditor import audit
from expunge.auditing.findings import Audit, Check

__all__ = ["Audit", "Check", "audit"]
