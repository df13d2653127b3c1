"""Spelling of hub sources, and the right form for a pasted address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.sources import HubSource
from app.integrations.hub.names import check_hub_source, is_repo_id


@pytest.mark.parametrize("repo_id", ["gpt2", "openai-community/gpt2", "a/b.c_d-e", "0/1"])
def test_ids_of_repositories_are_accepted(repo_id: str) -> None:
    assert check_hub_source(HubSource(repo_id)) == ()


@pytest.mark.parametrize(
    "repo_id",
    [
        "",
        "/",
        "a/b/c",
        "../a",
        "a/..",
        "a..b/c",
        "a--b/c",
        "a/b c",
        "a/b\0",
        "-a/b",
        "a/" + "b" * 97,
    ],
)
def test_other_ids_are_refused(repo_id: str) -> None:
    (finding,) = check_hub_source(HubSource(repo_id))

    assert (finding.pointer, finding.code) == ("/model/hub", "repo_id_invalid")


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/3", "a" * 40, "feature/x"])
def test_revisions_are_accepted(revision: str) -> None:
    assert check_hub_source(HubSource("a/b", revision)) == ()


@pytest.mark.parametrize("revision", ["", "..", "a/../b", "a b", "-x", "x" * 129, "a\n", "a%2f"])
def test_other_revisions_are_refused(revision: str) -> None:
    (finding,) = check_hub_source(HubSource("a/b", revision))

    assert (finding.pointer, finding.code) == ("/model/revision", "revision_invalid")


@pytest.mark.parametrize(
    ("pasted", "right"),
    [
        ("https://huggingface.co/org/name", '{"hub": "org/name"}'),
        ("huggingface.co/org/name/", '{"hub": "org/name"}'),
        ("https://hf.co/gpt2/tree/v1.0", '{"hub": "gpt2", "revision": "v1.0"}'),
        (
            "https://huggingface.co/org/name/blob/abc123/config.json",
            '{"hub": "org/name", "revision": "abc123"}',
        ),
        (
            "https://huggingface.co/org/name/tree/refs%2Fpr%2F4",
            '{"hub": "org/name", "revision": "refs/pr/4"}',
        ),
        ("https://hub.example.org/models/org/name?x=1#y", '{"hub": "org/name"}'),
        ("org/name@v2", '{"hub": "org/name", "revision": "v2"}'),
    ],
)
def test_pasted_address_gets_the_right_form(pasted: str, right: str) -> None:
    (finding,) = check_hub_source(HubSource(pasted))

    assert right in finding.message


@given(st.text(max_size=60))
def test_any_text_is_accepted_or_explained(text: str) -> None:
    findings = check_hub_source(HubSource(text))

    assert bool(findings) is not is_repo_id(text)
