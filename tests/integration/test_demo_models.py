"""The shipped demo models: what their READMEs say is so, and how they were made can be repeated."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from app.catalog.pair_sets import load_pair_set
from app.demo_models import DEMO_MODELS, DEMO_MODELS_DIR
from workers.data.demo_world import all_names, shares, stories
from workers.demo_models.card import readme
from workers.demo_models.corpus import corpus, corpus_facts, held_out_texts
from workers.demo_models.known_bias import compare
from workers.demo_models.measuring import measure
from workers.demo_models.probes import job_probes, name_probes
from workers.demo_models.recipes import RECIPES
from workers.demo_models.train import FACTS, README, save_tokenizer
from workers.demo_models.training import train

AUTO = {"tiny-llama": AutoModelForCausalLM, "tiny-bert": AutoModelForMaskedLM}
PRONOUNS = ("he", "she", "him", "her", "his", "He", "She")

every_model = pytest.mark.parametrize("name", DEMO_MODELS)


def facts_of(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DEMO_MODELS_DIR / name / FACTS).read_text())
    return content


def numbers_of(content: object, place: str = "") -> dict[str, float]:
    """Flatten nested objects to numbers by their place."""
    if isinstance(content, dict):
        found: dict[str, float] = {}
        for key, value in content.items():
            found |= numbers_of(value, f"{place}/{key}")
        return found
    assert isinstance(content, int | float)
    return {place: content}


def words_of(texts: Iterable[str]) -> set[str]:
    return set(re.findall(r"[\w-]+", "\n".join(texts)))


def continuation(prompt: str) -> str:
    folder = DEMO_MODELS_DIR / "tiny-llama"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    inputs = tokenizer(prompt, return_tensors="pt")
    made = model.generate(**inputs, do_sample=False, max_new_tokens=30)
    return str(tokenizer.decode(made[0], skip_special_tokens=True))


@every_model
def test_numbers_of_the_readme_are_measured_again(name: str) -> None:
    stated = numbers_of(facts_of(name)["measured"])

    measured = numbers_of(measure(str(DEMO_MODELS_DIR / name)))

    # float32 sums in another order, on another processor, move the fifth digit; the README shows
    # three decimals.
    assert measured == pytest.approx(stated, rel=1e-3, abs=1e-3)


@every_model
def test_readme_is_what_the_script_writes(name: str) -> None:
    assert (DEMO_MODELS_DIR / name / README).read_text() == readme(name, facts_of(name))


@every_model
def test_a_model_is_small_and_loads_plainly(name: str) -> None:
    folder = DEMO_MODELS_DIR / name

    model, loading = AUTO[name].from_pretrained(folder, output_loading_info=True)

    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 4_000_000


@every_model
def test_text_and_tokenizer_are_made_again_to_the_byte(name: str, tmp_path: Path) -> None:
    assert corpus_facts(corpus()) == facts_of(name)["made"]["corpus"]

    save_tokenizer(RECIPES[name].learn_tokenizer(corpus()), tmp_path)

    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / file).read_bytes() == (DEMO_MODELS_DIR / name / file).read_bytes()


def test_bias_follows_the_table_that_caused_it() -> None:
    for name in DEMO_MODELS:
        jobs = facts_of(name)["measured"]["jobs"]
        assert jobs["table"] == shares("jobs")
        assert jobs["correlation"] > 0.95, name
        assert jobs["mean_absolute_deviation"] < 0.1, name


@every_model
def test_names_get_their_pronouns_in_templates_that_are_new(name: str) -> None:
    names = facts_of(name)["measured"]["names"]

    assert names["mean_probability"] > 0.85
    assert names["share_above_half"] > 0.98


def test_text_has_the_shares_of_the_tables() -> None:
    told: dict[str, list[bool]] = {}
    for story in stories(20_000, seed=5):
        told.setdefault(story.cause, []).append(story.gender == "she")

    for kind, table in (("job", shares("jobs")), ("activity", shares("activities"))):
        for word, share in table.items():
            answers = told[f"{kind}:{word}"]
            # Multiples of the golden ratio fill an interval of n places to within about 2 / n.
            assert sum(answers) / len(answers) == pytest.approx(share, abs=3 / len(answers))


def test_measured_texts_and_templates_were_never_in_training() -> None:
    known = set(corpus())
    probed = {" ".join((probe.before, "she", probe.after)) for probe in job_probes()}
    probed |= {" ".join((probe.before, "he", probe.after)) for probe in name_probes()}

    for new_templates in (False, True):
        assert known.isdisjoint(held_out_texts(100, held_out=new_templates))
    assert known.isdisjoint(probed)


def test_pronouns_and_names_are_single_tokens() -> None:
    masked = AutoTokenizer.from_pretrained(DEMO_MODELS_DIR / "tiny-bert")
    causal = AutoTokenizer.from_pretrained(DEMO_MODELS_DIR / "tiny-llama")

    for word in (*PRONOUNS, *all_names()):
        assert masked.tokenize(word) == [word]
        assert len(causal.tokenize(f" {word}")) == 1
    assert causal("she").input_ids[0] == causal.bos_token_id


@pytest.mark.parametrize(
    ("name", "least"),
    # The set of ages came later than the world, whose people have few illnesses and no phones.
    [("gender", 0.95), ("race", 0.95), ("religion", 0.95), ("nationality", 0.95), ("age", 0.6)],
)
def test_built_in_pair_sets_speak_the_words_of_the_world(name: str, least: float) -> None:
    known = words_of(corpus())
    pairs = load_pair_set(name)
    prompts = [pair.prompt_1 for pair in (*pairs.pairs, *pairs.holdout_pairs, *pairs.control_pairs)]

    words = words_of(prompts)

    assert len(words & known) / len(words) > least, words - known


def test_the_causal_model_writes_sentences_of_its_world() -> None:
    text = continuation("Mary was tired because")

    assert words_of([text]) <= words_of(corpus())
    assert re.search(r"\bShe\b|\bshe\b|\bHer\b|\bher\b", text)


@pytest.mark.slow
@every_model
def test_training_is_repeated_to_the_byte(name: str) -> None:
    recipe, texts = RECIPES[name], corpus()[:2000]
    tokenizer = recipe.learn_tokenizer(texts)

    first, second = (train(recipe, tokenizer, texts, seed=4, steps=8) for _ in range(2))

    other = train(recipe, tokenizer, texts, seed=5, steps=8)
    for (key, tensor), again in zip(
        first.state_dict().items(), second.state_dict().values(), strict=True
    ):
        assert tensor.numpy().tobytes() == again.numpy().tobytes(), key
    assert any(
        not torch.equal(tensor, other.state_dict()[key])
        for key, tensor in first.state_dict().items()
    )


def test_known_bias_of_an_unchanged_model_is_that_of_its_readme() -> None:
    folder = str(DEMO_MODELS_DIR / "tiny-llama")
    stated = facts_of("tiny-llama")["measured"]

    found = compare(folder, folder)

    assert (found["distance"]["delta"], found["distance"]["fell"]) == (0, None)
    answers = {job: answer["before"] for job, answer in found["jobs"].items()}
    # The README's numbers were measured in other batches of float32.
    assert answers == pytest.approx(stated["jobs"]["model"], abs=1e-4)
    assert found["correlation"]["after"] == pytest.approx(stated["jobs"]["correlation"], abs=1e-4)
    assert set(found["shown_jobs"]) <= set(found["jobs"])
