"""Measure what a demo model knows: held-out text, and its bias beside the table that caused it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from workers.demo_models.corpus import held_out_texts
from workers.demo_models.probes import (
    Probe,
    ambiguous_name_probes,
    job_probes,
    name_probes,
)
from workers.demo_models.recipes import NO_TARGET
from workers.demo_models.training import collate, encode

CAUSAL_TEXTS = 300
MASKED_TEXTS = 60  # each token is a forward pass of its text
_BATCH = 128


class Scorer:
    """Log-likelihoods of one of the demo models, as plain transformers load it."""

    def __init__(self, folder: str) -> None:
        torch.set_num_threads(1)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.masked = self.tokenizer.mask_token is not None
        auto = AutoModelForMaskedLM if self.masked else AutoModelForCausalLM
        model: Any = auto.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        self.model = model.eval()

    @property
    def parameters(self) -> int:
        """Count the parameters, tied ones once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def share_of_she(self, probes: Sequence[Probe]) -> list[float]:
        """Give P(she) / (P(she) + P(he)) for each probe."""
        if self.masked:
            mask = self.tokenizer.mask_token
            texts = [f"{probe.before} {mask} {probe.after}" for probe in probes]
            rows = self.tokenizer(texts)["input_ids"]
            places = [row.index(self.tokenizer.mask_token_id) for row in rows]
            she, he = self.tokenizer.convert_tokens_to_ids(["she", "he"])
        else:
            rows = self.tokenizer([probe.before for probe in probes])["input_ids"]
            places = [len(row) - 1 for row in rows]
            she, he = (self._only_token(f" {word}") for word in ("she", "he"))
        found: list[float] = []
        for start in range(0, len(rows), _BATCH):
            chosen = self._logits_at(rows[start : start + _BATCH], places[start : start + _BATCH])
            found += torch.sigmoid(chosen[:, she] - chosen[:, he]).tolist()
        return found

    def loss(self, texts: Sequence[str]) -> tuple[float, int]:
        """Give the mean negative log-likelihood of a token in nats, and the number of tokens.

        A causal model guesses each token, the end included, from those before it; a masked one
        each token but the special ones from all others (pseudo-log-likelihood).
        """
        rows = encode(self.tokenizer, texts) if not self.masked else self._one_hidden(texts)
        total, count = 0.0, 0
        for start in range(0, len(rows), _BATCH):
            losses = self._losses(rows[start : start + _BATCH])
            total += float(losses.double().sum())
            count += losses.numel()
        return total / count, count

    def _only_token(self, text: str) -> int:
        (token,) = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return int(token)

    @torch.inference_mode()
    def _logits_at(self, rows: Sequence[Sequence[int]], places: Sequence[int]) -> torch.Tensor:
        batch = collate(rows, self.tokenizer.pad_token_id)
        logits = self.model(input_ids=batch.ids, attention_mask=batch.attention).logits
        return torch.as_tensor(logits[torch.arange(len(rows)), torch.tensor(places)])

    def _one_hidden(self, texts: Sequence[str]) -> list[list[int]]:
        """Give each text once for each of its tokens, that one replaced by its complement.

        The complement of token t is -1 - t, so that the row tells both place and token.
        """
        special = set(self.tokenizer.all_special_ids)
        return [
            [*row[:place], -1 - token, *row[place + 1 :]]
            for row in self.tokenizer(list(texts))["input_ids"]
            for place, token in enumerate(row)
            if token not in special
        ]

    @torch.inference_mode()
    def _losses(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        batch = collate(rows, self.tokenizer.pad_token_id)
        if self.masked:
            hidden = batch.ids < 0
            targets = -1 - batch.ids[hidden]
            ids = batch.ids.masked_fill(hidden, self.tokenizer.mask_token_id)
            logits = self.model(input_ids=ids, attention_mask=batch.attention).logits[hidden]
        else:
            labels = batch.ids.masked_fill(batch.attention == 0, NO_TARGET)[:, 1:]
            kept = labels != NO_TARGET
            result = self.model(input_ids=batch.ids, attention_mask=batch.attention)
            logits, targets = result.logits[:, :-1][kept], labels[kept]
        return torch.nn.functional.cross_entropy(logits, targets, reduction="none")


def measure(folder: str) -> dict[str, Any]:
    """Measure the model in `folder`; the result is plain JSON, the same at every run."""
    scorer = Scorer(folder)
    return {
        "parameters": scorer.parameters,
        "vocabulary": len(scorer.tokenizer),
        "held_out": {
            "known_templates": text_perplexity(scorer, held_out=False),
            "new_templates": text_perplexity(scorer, held_out=True),
        },
        "jobs": _against_table(scorer, job_probes()),
        "names": _certainty(scorer, name_probes()),
        "ambiguous_names": _against_table(scorer, ambiguous_name_probes()),
    }


def text_perplexity(scorer: Scorer, *, held_out: bool) -> dict[str, Any]:
    """Give the perplexity on stories not trained on; `held_out` takes new templates as well."""
    count = MASKED_TEXTS if scorer.masked else CAUSAL_TEXTS
    texts = held_out_texts(count, held_out=held_out)
    loss, tokens = scorer.loss(texts)
    return {"perplexity": math.exp(loss), "texts": len(texts), "tokens": tokens}


def answers_to(scorer: Scorer, probes: Sequence[Probe]) -> dict[str, float]:
    """Give the mean share of `she` for each person, over the contexts of the probes."""
    answers: dict[str, list[float]] = {}
    for probe, share in zip(probes, scorer.share_of_she(probes), strict=True):
        answers.setdefault(probe.person, []).append(share)
    return {person: float(np.mean(given)) for person, given in answers.items()}


def _against_table(scorer: Scorer, probes: Sequence[Probe]) -> dict[str, Any]:
    """Compare the model's mean share of `she` for each person with the table's."""
    table = {probe.person: probe.share for probe in probes}
    model = answers_to(scorer, probes)
    ours = np.array([model[person] for person in table])
    true = np.array(list(table.values()))
    return {
        "n": len(table),
        "contexts": len(probes) // len(table),
        "correlation": float(np.corrcoef(ours, true)[0, 1]),
        "mean_absolute_deviation": float(np.mean(np.abs(ours - true))),
        "table": table,
        "model": model,
    }


def _certainty(scorer: Scorer, probes: Sequence[Probe]) -> dict[str, Any]:
    """Say how surely names are given the pronoun of their gender."""
    shares = scorer.share_of_she(probes)
    right = [
        share if probe.share == 1 else 1 - share
        for probe, share in zip(probes, shares, strict=True)
    ]
    return {
        "n": len({probe.person for probe in probes}),
        "contexts": len(probes) // len({probe.person for probe in probes}),
        "mean_probability": float(np.mean(right)),
        "share_above_half": float(np.mean([value > 0.5 for value in right])),
        "least_certain": float(np.min(right)),
    }
