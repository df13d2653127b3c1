"""Run all checks side by side, each within its time, whatever becomes of the others."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from app.domain.errors import DebiasError
from app.redaction import redact
from app.services.doctor.broker import check_broker
from app.services.doctor.database import check_database, check_workers
from app.services.doctor.devices import check_devices
from app.services.doctor.disk import check_disk, check_home
from app.services.doctor.findings import Finding, problem
from app.services.doctor.hub import check_hub
from app.services.doctor.ports import check_api
from app.services.doctor.secret import check_secret, check_settings
from app.services.doctor.store import check_store
from app.settings import Settings

Check = Callable[[Settings], Iterable[Finding]]

# In the order in which they are shown: what the later ones rest on comes first.
CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "settings": check_settings,
        "secret key": check_secret,
        "home": check_home,
        "disk": check_disk,
        "database": check_database,
        "broker": check_broker,
        "store": check_store,
        "hub": check_hub,
        "torch": check_devices,
        "workers": check_workers,
        "api": check_api,
    }
)


@dataclass(slots=True)
class _Running:
    """A check in a thread of its own."""

    thread: threading.Thread
    findings: list[Finding] = field(default_factory=list)


def run_checks(
    settings: Settings, *, timeout_s: float, checks: Mapping[str, Check] = CHECKS
) -> Iterator[tuple[str, list[Finding]]]:
    """Run the checks at once and give their findings in their order, without secrets.

    A check that takes longer than `timeout_s`, or raises, is a problem of its own. Its thread is
    left behind: whatever it hangs in does not hold up the end of the process.
    """
    started = {name: _start(check, settings) for name, check in checks.items()}
    waited = threading.Event()
    timer = threading.Timer(timeout_s, waited.set)
    timer.daemon = True
    timer.start()
    for name, running in started.items():
        while running.thread.is_alive() and not waited.is_set():
            running.thread.join(0.05)
        findings = list(running.findings)
        if running.thread.is_alive():
            findings.append(_too_slow(timeout_s))
        yield name, [_redacted(finding) for finding in findings]
    timer.cancel()


def _start(check: Check, settings: Settings) -> _Running:
    found: list[Finding] = []

    def run() -> None:
        try:
            for finding in check(settings):
                found.append(finding)
        except DebiasError as exc:
            found.append(problem(exc.detail, "Correct the setting that the message names."))
        except Exception as exc:  # one broken check must not cost the others
            found.append(
                problem(
                    f"The check itself failed: {type(exc).__name__}: {exc}",
                    "Report this with the output of `debias doctor --json`.",
                )
            )

    thread = threading.Thread(target=run, name="doctor", daemon=True)
    running = _Running(thread, found)
    thread.start()
    return running


def _too_slow(timeout_s: float) -> Finding:
    return problem(
        f"No answer within {timeout_s:g} s.",
        "Something between here and there drops packets, or the other side hangs: check the "
        "address, the firewall, and that server's own log.",
    )


def _redacted(finding: Finding) -> Finding:
    hint = redact(finding.hint) if finding.hint else None
    return Finding(finding.level, redact(finding.message), hint)
