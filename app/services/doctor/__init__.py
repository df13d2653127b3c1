"""Checks of a deployment, one part each: what is wrong, and what to do about it."""

from app.services.doctor.checks import CHECKS, Check, run_checks
from app.services.doctor.findings import Finding, Level

__all__ = ["CHECKS", "Check", "Finding", "Level", "run_checks"]
