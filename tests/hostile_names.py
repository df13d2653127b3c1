"""Strings that lead somewhere else where a program takes them for part of a path."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUTSIDE = "outside"
SECRET = "the-secret-outside"

NAMES: dict[str, str] = {
    # Upwards.
    "parent": "..",
    "parent file": f"../{OUTSIDE}/secret",
    "grandparents": f"../../../../../../../..<root>/{OUTSIDE}/secret",
    "parent in the middle": f"tiny/../../{OUTSIDE}/secret",
    "parent at the end": "tiny/..",
    "parent of a file": f"config.json/../../{OUTSIDE}/secret",
    "parent with a dot": f".././{OUTSIDE}/secret",
    "parent with slashes": f"..//{OUTSIDE}//secret",
    "doubled dots": f"....//{OUTSIDE}/secret",
    "three dots": f".../{OUTSIDE}/secret",
    "sel": ".",
    "self file": "./tiny",
    # From the root, or another root.
    "absolute": f"<root>/{OUTSIDE}/secret",
    "absolute with two slashes": f"//<root>/{OUTSIDE}/secret",
    "root": "/",
    "password file": "/etc/passwd",
    "process": "/proc/self/environ",
    "device": "/dev/zero",
    "home": "~/secret",
    "home of root": "~root/.ssh/id_rsa",
    "variable": f"$HOME/{OUTSIDE}",
    "variable in braces": "${PWD}/secret",
    "file URL": f"file://<root>/{OUTSIDE}/secret",
    "URL": "http://127.0.0.1:1/secret",
    "bucket": "s3://bucket/secret",
    # Other systems.
    "backslashes": f"..\\{OUTSIDE}\\secret",
    "mixed slashes": f"..\\../{OUTSIDE}/secret",
    "drive": "C:\\Windows\\win.ini",
    "drive with slashes": "C:/Windows/win.ini",
    "drive, relative": "C:secret",
    "share": "\\\\host\\share\\secret",
    "device of Windows": "\\\\.\\PhysicalDrive0",
    "stream": "config.json::$DATA",
    # Encoded.
    "encoded slash": f"..%2f{OUTSIDE}%2fsecret",
    "encoded dots": f"%2e%2e/{OUTSIDE}/secret",
    "encoded wholly": "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "encoded twice": f"%252e%252e%252f{OUTSIDE}%252fsecret",
    "encoded backslash": f"..%5c{OUTSIDE}%5csecret",
    "encoded NUL": "config.json%00.png",
    "overlong slash": f"..%c0%af{OUTSIDE}%c0%afsecret",
    "overlong dot": f"%c0%ae%c0%ae/{OUTSIDE}/secret",
    "HTML entity": f"&#46;&#46;/{OUTSIDE}/secret",
    "escaped": f"\\x2e\\x2e/{OUTSIDE}/secret",
    # Look-alikes.
    "one dot leader": f"\u2024\u2024/{OUTSIDE}/secret",
    "two dot leader": f"\u2025/{OUTSIDE}/secret",
    "fullwidth dots": f"\uff0e\uff0e/{OUTSIDE}/secret",
    "fullwidth slash": f"..\uff0f{OUTSIDE}\uff0fsecret",
    "fraction slash": f"..\u2044{OUTSIDE}\u2044secret",
    "division slash": f"..\u2215{OUTSIDE}\u2215secret",
    "decomposed": "cafe\u0301/model",
    "right to left": "tiny\u202ecod.exe",
    "zero width": "..\u200b/secret",
    "byte order mark": "\ufeff../secret",
    # Control characters.
    "NUL": "config.json\0.png",
    "newline": "tiny\n../secret",
    "carriage return": "tiny\r\nSet-Cookie: a=b",
    "tab": "tiny\t",
    "escape": "\x1b[2Jtiny",
    "delete": "tiny\x7f",
    # Shape.
    "empty": "",
    "empty segment": "tiny//config.json",
    "slash at the end": "tiny/",
    "very long": "a" * 5000,
    "long segment": "a" * 256,
    "very deep": "a/" * 300 + "a",
    "fragment": f"tiny#/../../{OUTSIDE}/secret",
    "query": f"tiny?/../../{OUTSIDE}/secret",
    "semicolon": f"tiny;/../../{OUTSIDE}/secret",
    "wildcard": "*",
    "braces": "{tiny,../secret}",
    "option": "--upload-pack=touch x",
    "command": "tiny;touch x",
    "pipe": "|id",
    "substitution": "$(id)",
    "quote": 'tiny"; filename="x',
    # Harmless here, and another file or a device elsewhere.
    "dot at the end": "tiny.",
    "space at the end": "tiny ",
    "space at the start": " tiny",
    "console": "CON",
    "null device": "nul.json",
    "serial port": "com1.txt",
    "other case": "TINY",
    "hidden": ".ssh",
}


def hostile_names(root: str) -> dict[str, str]:
    """Give the table, aimed at the file `outside/secret` below `root`."""
    return {label: text.replace("<root>", root) for label, text in NAMES.items()}


OPENING = frozenset({"open", "os.listdir", "os.scandir", "os.rename", "os.remove", "os.mkdir"})


@dataclass
class Sandbox:
    """A folder to work in, a folder beside it with a secret, and what was opened outside."""

    root: Path
    opened_outside: list[str] = field(default_factory=list)

    @property
    def inside(self) -> Path:
        return self.root / "inside"

    @property
    def outside(self) -> Path:
        return self.root / OUTSIDE

    def contents(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.outside.rglob("*") if path.is_file()}

    def watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note every path that Python opens outside `inside` and might be a stranger's."""
        if event not in OPENING:
            return
        for argument in arguments[:2]:
            if isinstance(argument, str | bytes | os.PathLike):
                self._note(os.fsdecode(argument))

    def _note(self, name: str) -> None:
        path = os.path.realpath(name)
        suspicious = (str(self.outside), "/etc/passwd", "/root/.ssh", "/dev/zero", "/proc/self")
        if path.startswith(suspicious):
            self.opened_outside.append(name)


_watched: list[Sandbox] = []


@contextmanager
def watching(sandbox: Sandbox) -> Iterator[None]:
    """Let the sandbox see what is opened."""
    _watched.append(sandbox)
    try:
        yield
    finally:
        _watched.remove(sandbox)


def _on_audit(event: str, arguments: tuple[Any, ...]) -> None:
    # A hook can never be taken away again: it serves whichever sandbox there is.
    for sandbox in _watched:
        sandbox.watch(event, arguments)


sys.addaudithook(_on_audit)
