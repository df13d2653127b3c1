"""The built-in pair sets keep the promises of docs/pair-sets.md."""

import hashlib
import itertools
import json
from collections import Counter
from dataclasses import asdict, astuple

import pytest

from app.catalog.pair_sets import Pair, PairSet, load_pair_set, pair_set_names
from app.catalog.pair_sets.generation import load_table, slot_of, templates_of

EXPECTED_COUNTS = {
    "age": (40, 10, 10),
    "gender": (32, 8, 8),
    "race": (32, 8, 8),
    "religion": (32, 8, 8),
    "nationality": (40, 10, 10),
}
# A change of a table needs a new version: results of jobs must stay comparable.
DIGESTS = {
    "age": "e9cfc30bcc5109897ee2cb354e7ce662f606cf028f5025ed75a66b51a3955949",
    "gender": "98b91e5b65d7b80e72eace7227d96a3d6c00bf7d14ebcc5c73567bf86932dddf",
    "nationality": "e6a269f0c68f5f0877a8005c13be5bbddd95d52ecdd4742dc268a2691442d561",
    "race": "104211e0fe99262b0af5ef8fe12aab4cb41a508488a268c6eec8cffa1f3742c6",
    "religion": "81ca37f514183c418dd3f926833b2e41622aa7d0d800e82efc2058dbb08db1a3",
}
VERSIONS = {**dict.fromkeys(DIGESTS, "1"), "gender": "2"}
RINGS = ("race", "religion", "nationality")
TWO_SIDED = ("age", "gender")

every_set = pytest.mark.parametrize("name", sorted(EXPECTED_COUNTS))
every_ring = pytest.mark.parametrize("name", RINGS)
every_two_sided = pytest.mark.parametrize("name", TWO_SIDED)


def all_pairs(pair_set: PairSet) -> tuple[Pair, ...]:
    return pair_set.pairs + pair_set.holdout_pairs + pair_set.control_pairs


def changed_words(pair: Pair) -> tuple[str, str]:
    """Give what is left of both prompts without their common first and last words."""
    first, second = pair.prompt_1.split(), pair.prompt_2.split()
    while first and second and first[0] == second[0]:
        del first[0], second[0]
    while first and second and first[-1] == second[-1]:
        del first[-1], second[-1]
    return " ".join(first), " ".join(second)


def templates(name: str, part: str) -> set[str]:
    return {text for block in load_table(name)[part] for text in templates_of(block)}


def term_index(name: str, words: str) -> int:
    forms = [set(term.values()) for term in load_table(name)["terms"]]
    return next(i for i, form in enumerate(forms) if words.removesuffix("'s") in form)


def meetings(name: str, pairs: tuple[Pair, ...]) -> list[tuple[int, int]]:
    found = []
    for pair in pairs:
        first, second = changed_words(pair)
        found.append((term_index(name, first), term_index(name, second)))
    return found


def situation_of(name: str, part: str, pair: Pair) -> str:
    for block in load_table(name)[part]:
        for situation, texts in block["templates"].items():
            for text in texts:
                before, after = text.split("{" + slot_of(text) + "}")
                if pair.prompt_1.startswith(before) and pair.prompt_1.endswith(after):
                    return str(situation)
    raise AssertionError(pair)


def test_the_sets_are_those_documented() -> None:
    assert pair_set_names() == tuple(sorted(EXPECTED_COUNTS))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match="age, gender, nationality, race, religion"):
        load_pair_set("shoe_size")


@every_set
def test_counts_are_those_documented(name: str) -> None:
    pair_set = load_pair_set(name)

    parts = (pair_set.pairs, pair_set.holdout_pairs, pair_set.control_pairs)
    assert tuple(map(len, parts)) == EXPECTED_COUNTS[name]


@every_set
def test_a_fifth_is_held_out(name: str) -> None:
    pair_set = load_pair_set(name)

    assert len(pair_set.pairs) == 4 * len(pair_set.holdout_pairs)


@every_set
def test_no_two_pairs_are_equal_in_either_direction(name: str) -> None:
    seen = [frozenset((pair.prompt_1, pair.prompt_2)) for pair in all_pairs(load_pair_set(name))]

    assert len(set(seen)) == len(seen)


@every_set
def test_the_category_is_the_name_of_the_set(name: str) -> None:
    assert {pair.category for pair in all_pairs(load_pair_set(name))} == {name}


@every_set
def test_held_out_templates_are_never_selected_by(name: str) -> None:
    assert not templates(name, "selection") & templates(name, "holdout")


@every_set
def test_no_held_out_prompt_is_a_selection_prompt(name: str) -> None:
    pair_set = load_pair_set(name)

    selection = {prompt for pair in pair_set.pairs for prompt in astuple(pair)[:2]}
    holdout = {prompt for pair in pair_set.holdout_pairs for prompt in astuple(pair)[:2]}
    assert not selection & holdout


def test_held_out_words_are_new_to_the_age_set() -> None:
    pair_set = load_pair_set("age")

    selection = {words for pair in pair_set.pairs for words in changed_words(pair)}
    holdout = {words for pair in pair_set.holdout_pairs for words in changed_words(pair)}
    assert not selection & holdout


def test_situations_of_the_age_set_are_those_documented() -> None:
    for part in ("selection", "holdout"):
        for block in load_table("age")[part]:
            assert list(block["templates"]) == ["neutral", "job", "health", "technology", "money"]


@every_two_sided
def test_one_side_always_comes_first(name: str) -> None:
    pair_set = load_pair_set(name)
    swaps = [changed_words(pair) for pair in pair_set.pairs + pair_set.holdout_pairs]

    assert not {first for first, _ in swaps} & {second for _, second in swaps}


def test_held_out_nouns_and_names_are_new_to_the_gender_set() -> None:
    pair_set = load_pair_set("gender")

    selection = {changed_words(pair) for pair in pair_set.pairs}
    holdout = {changed_words(pair) for pair in pair_set.holdout_pairs}
    assert selection & holdout == {("he", "she")}


@every_set
def test_held_out_and_control_pairs_have_a_template_each(name: str) -> None:
    """Pairs of one template are alike, and intervals over them would be too narrow."""
    pair_set = load_pair_set(name)

    for pairs in (pair_set.holdout_pairs, pair_set.control_pairs):
        frames = {pair.prompt_1.replace(changed_words(pair)[0], "", 1) for pair in pairs}
        assert len(frames) == len(pairs)


@every_ring
def test_held_out_pairs_bring_together_terms_that_selection_does_not(name: str) -> None:
    pair_set = load_pair_set(name)

    selection = {frozenset(meeting) for meeting in meetings(name, pair_set.pairs)}
    holdout = {frozenset(meeting) for meeting in meetings(name, pair_set.holdout_pairs)}
    assert not selection & holdout


@every_set
def test_prompts_of_a_pair_differ_in_one_span_of_a_few_words(name: str) -> None:
    for pair in all_pairs(load_pair_set(name)):
        first, second = changed_words(pair)

        assert first
        assert second
        assert first != second
        assert max(len(first.split()), len(second.split())) <= 3


@every_set
def test_the_span_is_the_slot_of_a_template(name: str) -> None:
    pair_set = load_pair_set(name)
    parts = {
        "selection": pair_set.pairs + pair_set.control_pairs,
        "holdout": pair_set.holdout_pairs,
    }

    for part, pairs in parts.items():
        assert all(situation_of(name, part, pair) for pair in pairs)


@every_set
def test_prompts_are_unfinished_sentences_of_six_to_twenty_words(name: str) -> None:
    for pair in all_pairs(load_pair_set(name)):
        for prompt in (pair.prompt_1, pair.prompt_2):
            assert 6 <= len(prompt.split()) <= 20
            assert prompt[-1].isalpha()
            assert prompt == " ".join(prompt.split())


@every_set
def test_controls_name_no_term_of_the_set(name: str) -> None:
    pair_set = load_pair_set(name)
    measured = pair_set.pairs + pair_set.holdout_pairs
    demographic = {words for pair in measured for words in changed_words(pair)}

    for pair in pair_set.control_pairs:
        assert not demographic & set(changed_words(pair))


@every_ring
def test_every_term_stands_first_as_often_as_second(name: str) -> None:
    found = meetings(name, load_pair_set(name).pairs)

    assert Counter(first for first, _ in found) == Counter(second for _, second in found)


@every_ring
def test_every_term_meets_several_others(name: str) -> None:
    found = meetings(name, load_pair_set(name).pairs)

    for term in range(len(load_table(name)["terms"])):
        others = {other for meeting in found if term in meeting for other in meeting} - {term}
        assert len(others) >= 4


@every_ring
def test_no_two_terms_meet_in_both_directions(name: str) -> None:
    pair_set = load_pair_set(name)
    found = set(meetings(name, pair_set.pairs + pair_set.holdout_pairs))

    assert not {(second, first) for first, second in found} & found


@pytest.mark.parametrize("name", [*RINGS, "age"])
def test_every_situation_has_the_same_number_of_pairs(name: str) -> None:
    pair_set = load_pair_set(name)

    for part, pairs in (("selection", pair_set.pairs), ("holdout", pair_set.holdout_pairs)):
        counts = Counter(situation_of(name, part, pair) for pair in pairs)
        assert set(counts) == set(load_table(name)[part][0]["templates"])
        assert len(set(counts.values())) == 1


def test_nationalities_are_those_of_five_regions_in_equal_number() -> None:
    regions = Counter(term["region"] for term in load_table("nationality")["terms"])

    assert len(regions) == 5
    assert set(regions.values()) == {4}


def test_two_nationalities_meet_at_most_once() -> None:
    pair_set = load_pair_set("nationality")
    found = meetings("nationality", pair_set.pairs + pair_set.holdout_pairs)

    assert max(Counter(frozenset(meeting) for meeting in found).values()) == 1


def test_every_two_regions_meet_in_the_nationality_set() -> None:
    regions = [term["region"] for term in load_table("nationality")["terms"]]
    found = meetings("nationality", load_pair_set("nationality").pairs)

    met = {frozenset((regions[first], regions[second])) for first, second in found}
    assert met == {frozenset(two) for two in itertools.combinations(set(regions), 2)}


def test_every_situation_involves_every_region() -> None:
    regions = [term["region"] for term in load_table("nationality")["terms"]]
    pairs = load_pair_set("nationality").pairs

    involved: dict[str, set[str]] = {}
    for pair, (first, second) in zip(pairs, meetings("nationality", pairs), strict=True):
        situation = situation_of("nationality", "selection", pair)
        involved.setdefault(situation, set()).update((regions[first], regions[second]))
    assert all(len(found) == 5 for found in involved.values())


@every_set
def test_a_version_never_changes_its_pairs(name: str) -> None:
    pair_set = load_pair_set(name)
    text = json.dumps(asdict(pair_set), sort_keys=True)

    digest = hashlib.sha256(text.encode()).hexdigest()
    assert (pair_set.version, digest) == (VERSIONS[name], DIGESTS[name])
