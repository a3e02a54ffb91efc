"""Everything that can be checked about a stored model, and a report of it that opens offline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expunge.base.lazy import lazily

if TYPE_CHECKING:
    from expunge.audit.auditor import audit
    from expunge.audit.findings import Audit, Check
    from expunge.audit.report import render, write_report
else:
    __getattr__, __dir__ = lazily(
        __name__, {"auditor": "audit", "findings": "Audit Check", "report": "render write_report"}
    )

__all__ = ["Audit", "Check", "audit", "render", "write_report"]
