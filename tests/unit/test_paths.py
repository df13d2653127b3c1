"""Names from users never lead out of the folder they are meant for."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.security.paths import is_plain_name, plain_segments, resolve_below


@pytest.mark.parametrize(
    "name",
    ["model", "org/model-1.2", "a b/c+d=e@f", "\u6a21\u578b", "caf\u00e9", "/".join("abcdefgh")],
)
def test_plain_names_are_split(name: str) -> None:
    assert plain_segments(name) == tuple(name.split("/"))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "/etc/passwd",
        "a//b",
        "a/",
        ".",
        "..",
        "a/../b",
        "a/./b",
        "a\0b",
        "a\\b",
        "a:b",
        "a%2fb",
        "a\nb",
        "cafe\u0301",
        "x" * 201,
        "/".join("abcdefghi"),
        "~root",
        "a*",
        "\ud800",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"^(has|must|may)"):
        plain_segments(name)


@given(st.text(max_size=30))
def test_accepted_name_stays_below_its_root(name: str) -> None:
    try:
        segments = plain_segments(name)
    except ValueError:
        return

    assert Path("/root-of-models").joinpath(*segments).is_relative_to("/root-of-models")
    assert ".." not in segments
    assert os.path.normpath(f"/root-of-models/{name}") == f"/root-of-models/{name}"


@given(st.text(max_size=10))
def test_plain_name_has_no_separator(name: str) -> None:
    if is_plain_name(name):
        assert len(Path(name).parts) == 1
        assert not Path(name).is_absolute()


def test_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "outside")

    with pytest.raises(ValueError, match="link"):
        resolve_below(root, "link")


def test_link_inside_the_root_is_followed(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "link").symlink_to("model")

    assert resolve_below(tmp_path, "link") == (tmp_path / "model").resolve()
