"""Take each defence of SECURITY.md out, in a copy of the repository, and see its test fail.

`python -m tests.defences [id ...]` prints a table and ends with 1 where a test still passes.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
COPIED = ("app", "workers", "debias_client", "migrations", "tests")
COPIED_FILES = ("pyproject.toml", "constraints.txt", "README.md", "openapi.json")
TEST_TIMEOUT_S = 120
TESTS_FAILED = 1  # pytest's status for failed tests, as against 2 to 5: none was run as it should
_ROW = re.compile(r"\| (?P<cells>T\d\d \|.*) \|")


@dataclass(frozen=True)
class Threat:
    """A row of the threat model."""

    id: str
    asset: str
    threat: str
    defence: str
    test: str


@dataclass(frozen=True)
class Removal:
    """The change that takes a defence out: in `file`, `old` becomes `new`, wherever it stands."""

    file: str
    old: str
    new: str


def threats() -> Sequence[Threat]:
    """Read the table of SECURITY.md."""
    lines = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8").splitlines()
    rows = (match["cells"].split(" | ") for line in lines if (match := _ROW.fullmatch(line)))
    return [Threat(*cells[:4], cells[4].strip("`")) for cells in rows]


REMOVALS: Mapping[str, Removal] = {
    "T01": Removal(
        "app/db/repositories/artifacts.py",
        ".where(Artifact.project_id == self._project_id, Job.deleted_at.is_(None))",
        ".where(Job.deleted_at.is_(None))",
    ),
    "T02": Removal("app/api/deps.py", "if not principal.has(self.scope):", "if False:"),
    "T03": Removal("app/services/keys.py", "not matches or not _is_live(*found)", "not matches"),
    "T04": Removal("app/services/keys.py", "or not matches or", "or"),
    "T05": Removal(
        "app/security/auth.py",
        "return GeneratedKey(text, prefix, _sha256(text))",
        "return GeneratedKey(text, prefix, text)",
    ),
    "T06": Removal(
        "app/security/signing.py",
        'f"{artifact_id}\\n{expires}\\n{issuer}\\n{self.key_id}"',
        'f"{expires}\\n{issuer}\\n{self.key_id}"',
    ),
    "T07": Removal("app/security/signing.py", "if now.timestamp() >= int(expires):", "if False:"),
    "T08": Removal(
        "app/db/repositories/idempotency.py",
        'IdempotencyKey.project_id == sa.bindparam("project_id"),',
        "sa.true(),",
    ),
    "T09": Removal(
        "app/security/secrets.py",
        'if (content["project"], content["name"]) != (project_id.hex, name):',
        "if False:",
    ),
    "T10": Removal("app/logging.py", "event[name] = HIDDEN", "pass"),
    "T11": Removal(
        "app/integrations/hub/transport.py",
        "            request = response.next_request\n",
        '            request, token = response.next_request, request.headers["Authorization"]\n'
        '            request.headers["Authorization"] = token\n',
    ),
    "T12": Removal("app/security/paths.py", 'r"[\\w .@+=-]{1,200}"', 'r"(?s).{0,9000}"'),
    "T13": Removal(
        "app/services/model_readers.py", "if not path.is_relative_to(root):", "if False:"
    ),
    "T14": Removal(
        "app/security/paths.py",
        "if not path.is_relative_to(root.resolve(strict=True)):",
        "if False:",
    ),
    "T15": Removal(
        "debias_client/download.py",
        "if not target.parent.resolve().is_relative_to(root):",
        "if False:",
    ),
    "T16": Removal(
        "app/security/model_config.py", "if selects and _holds_text(value):", "if False:"
    ),
    "T17": Removal(
        "app/security/model_config.py",
        "_DROPPED = _CODE_REFERENCES | {_CACHE_CHOICE}",
        "_DROPPED = frozenset({_CACHE_CHOICE})",
    ),
    "T18": Removal(
        "workers/models/load.py",
        "local_files_only=True, trust_remote_code=False",
        "trust_remote_code=True",
    ),
    "T19": Removal(
        "app/security/model_files.py",
        "if not is_plain_name(name) or PurePosixPath(name).suffix.lower() in _CODE_SUFFIXES:",
        "if name.endswith('.gitattributes'):",
    ),
    "T20": Removal("app/security/safetensors_check.py", "if begin < end:", "if False:"),
    "T21": Removal("app/security/safetensors_check.py", "if length > size - 8:", "if False:"),
    "T22": Removal("app/security/strict_json.py", "> MAX_PARTS:", "> 10**12:"),
    "T23": Removal(
        "app/security/strict_json.py", "if _is_deeper_than(value, max_depth):", "if False:"
    ),
    "T24": Removal(
        "app/integrations/tokenizer_process.py", ".poll(_ANSWER_TIMEOUT_S)", ".poll(None)"
    ),
    "T25": Removal(
        "workers/fetch.py",
        'if facts.st_size != file["size"] or facts.st_mtime_ns != file.get("mtime_ns"):',
        "if False:",
    ),
    "T26": Removal("app/api/body.py", "if size > max_bytes:", "if False:"),
    "T27": Removal(
        "app/api/body.py", "anyio.fail_after(BODY_DEADLINE_S)", "anyio.fail_after(3600)"
    ),
    "T28": Removal("app/api/protocol.py", "call_later(RECEIVE_DEADLINE_S,", "call_later(3600,"),
    "T29": Removal("app/api/protocol.py", "> MAX_HEAD_BYTES:", "> 10**12:"),
    "T30": Removal("app/api/protocol.py", "call_later(STALLED_READER_S,", "call_later(3600,"),
    "T31": Removal("app/api/rate_limits.py", "if not admitted:", "if False:"),
    "T32": Removal(
        "app/services/quotas.py",
        "if quota.is_used_up or quota.used + output_bytes > limit:",
        "if False:",
    ),
    "T33": Removal(
        "app/storage/content.py", '"Content-Security-Policy": "sandbox"', '"X-Nothing": "sandbox"'
    ),
    "T34": Removal(
        "app/api/security_headers.py",
        'headers.setdefault("Content-Security-Policy", CONTENT_POLICY)',
        "pass",
    ),
    "T35": Removal("app/api/security_headers.py", "if host not in self._names:", "if False:"),
    "T36": Removal("app/settings.py", "if not _ORIGIN.fullmatch(origin):", "if False:"),
    "T37": Removal("workers/reports/html.py", "autoescape=True", "autoescape=False"),
    "T38": Removal(
        "app/db/repositories/execution.py",
        "Job.id == job_id, Job.fence == fence, Job.status.in_(LEASED)",
        "Job.id == job_id, Job.status.in_(LEASED)",
    ),
    "T39": Removal("app/cli/servers.py", 'if settings.auth_mode == "disabled":', "if False:"),
    "T40": Removal("workers/runtime/results.py", "or any(step.is_symlink() for step in steps)", ""),
    "T41": Removal(
        "app/api/watcher.py", "or self._by_project[project] >= MAX_WATCHES_PER_PROJECT", ""
    ),
    "T42": Removal("app/api/watcher.py", "            watch.end()\n", "            pass\n"),
    "T43": Removal(
        "app/services/artifacts.py",
        "if issuer and (key_id is None or not live_keys(session, [key_id], now=now)):",
        "if False:",
    ),
    "T44": Removal("app/domain/findings.py", "islice(found, MAX_FINDINGS)", "found"),
    "T45": Removal("app/api/turns.py", "AT_ONCE = 4", "AT_ONCE = 400"),
    "T46": Removal("app/api/startup.py", "        max_total_bytes=settings.max_model_bytes,\n", ""),
}


@contextmanager
def copy_of_repository() -> Iterator[Path]:
    """Copy what tests need into a folder of its own: the working tree is never touched."""
    with tempfile.TemporaryDirectory(prefix="defences-") as folder:
        root = Path(folder)
        for name in COPIED:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / name, root / name, ignore=ignored)
        for name in COPIED_FILES:
            shutil.copy2(REPOSITORY / name, root / name)
        yield root


def take_out(removal: Removal, root: Path) -> None:
    """Apply the removal; its text must be there, else it would prove nothing."""
    path = root / removal.file
    text = path.read_text(encoding="utf-8")
    if removal.old not in text:
        raise LookupError(f"{removal.file} has no {removal.old!r}")
    path.write_text(text.replace(removal.old, removal.new), encoding="utf-8")


def run_tests(root: Path, *tests: str) -> int:
    """Run tests of the copy and return pytest's status."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, "--timeout", str(TEST_TIMEOUT_S), *tests],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "HYPOTHESIS_STORAGE_DIRECTORY": str(root)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return ended.returncode


def is_needed(threat: Threat) -> bool:
    """Whether the test of a threat fails once its defence is gone."""
    with copy_of_repository() as root:
        take_out(REMOVALS[threat.id], root)
        return run_tests(root, threat.test) == TESTS_FAILED


def main(asked: Sequence[str]) -> int:
    """Print what happens without each defence."""
    chosen = [threat for threat in threats() if not asked or threat.id in asked]
    with copy_of_repository() as root:
        if run_tests(root, *(threat.test for threat in chosen)) != 0:
            print("The tests fail with all defences in place: correct that first.")
            return 1
    useless = 0
    for threat in chosen:
        fails = is_needed(threat)
        useless += not fails
        print(
            f"{threat.id}  {'fails without it' if fails else 'STILL PASSES'}  {threat.test}",
            flush=True,
        )
    print(f"{len(chosen) - useless} of {len(chosen)} tests fail without their defence.")
    return 1 if useless else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
