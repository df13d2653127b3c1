"""What each demo model is: its tokenizer, its shape, and how it learns from a batch of stories."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from workers.demo_models.tokenization import learn_byte_level_bpe, learn_word_piece

LONGEST_TEXT = 128
NO_TARGET = -100  # what the cross entropy of torch leaves out

# 1 / sqrt(128), as layers of this width need; BERT's own 0.02 is made for wider ones.
INITIAL_SPREAD = 0.09

# Share of the tokens to guess, as in BERT.
MASKED_SHARE = 0.15
# Each pronoun is hidden in half of the cases, and in half of the texts all are, so that none can be
# copied from another one and the model has to learn from names, jobs and nouns.
PRONOUN_HIDDEN_SHARE = 0.5
ALL_HIDDEN_SHARE = 0.5
# The first steps ask for pronouns alone, all of them, in texts that are whole otherwise: with other
# gaps from the start, the encoder had learned no gender of any name after 2,500 steps.
PRONOUN_STEPS = 1500
PRONOUN_WORDS = ("she", "her", "he", "him", "his", "She", "Her", "He", "Him", "His")

Loss = Callable[[Any, "Batch", random.Random, int], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts as ids, filled up to one length: both tensors are (batch, length)."""

    ids: torch.Tensor
    attention: torch.Tensor


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one demo model is made, from the text to the last step."""

    name: str
    title: str
    learn_tokenizer: Callable[[Sequence[str]], PreTrainedTokenizerBase]
    build: Callable[[PreTrainedTokenizerBase], PreTrainedModel]
    loss: Callable[[PreTrainedTokenizerBase], Loss]
    steps: int
    batch_size: int
    learning_rate: float


def build_llama(tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Build the decoder: gated MLPs, two query heads for each key-value head, tied embeddings."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LONGEST_TEXT,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def build_bert(tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Build the encoder with its head for masked words, tied to the embeddings."""
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=LONGEST_TEXT,
        initializer_range=INITIAL_SPREAD,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
    )
    return BertForMaskedLM(config)


def causal_loss(tokenizer: PreTrainedTokenizerBase) -> Loss:
    """Make the loss of guessing each next token."""
    del tokenizer

    def loss(model: Any, batch: Batch, rng: random.Random, step: int) -> torch.Tensor:
        del rng, step
        labels = batch.ids.masked_fill(batch.attention == 0, NO_TARGET)
        result = model(input_ids=batch.ids, attention_mask=batch.attention, labels=labels)
        return torch.as_tensor(result.loss)

    return loss


def masked_loss(tokenizer: PreTrainedTokenizerBase) -> Loss:
    """Make the loss of guessing hidden tokens: a random share, and most pronouns.

    It is the sum of both means: among all tokens the few pronouns would hardly count, and nothing
    else teaches the gender of names and jobs. Of the random ones a tenth is replaced by another
    token and a tenth left as it is, as in BERT.
    """
    words = tokenizer.convert_tokens_to_ids(list(PRONOUN_WORDS))
    pronouns = torch.tensor(words)
    special = torch.tensor(tokenizer.all_special_ids)
    mask_id, size = int(tokenizer.mask_token_id), len(tokenizer)

    def loss(model: Any, batch: Batch, rng: random.Random, step: int) -> torch.Tensor:
        chance = torch.Generator().manual_seed(rng.getrandbits(63))
        shape = batch.ids.shape
        fixed = torch.isin(batch.ids, special)
        guessed = (torch.rand(shape, generator=chance) < MASKED_SHARE) & ~fixed
        each = torch.rand(shape, generator=chance) < PRONOUN_HIDDEN_SHARE
        every = torch.rand((shape[0], 1), generator=chance) < ALL_HIDDEN_SHARE
        hidden = torch.isin(batch.ids, pronouns) & (each | every | (step < PRONOUN_STEPS))
        if step < PRONOUN_STEPS:
            guessed = torch.zeros_like(guessed)
        fate = torch.rand(shape, generator=chance)
        other = torch.randint(size, shape, generator=chance)
        shown = torch.where(guessed & (fate < 0.9), other, batch.ids)
        shown = shown.masked_fill((guessed & (fate < 0.8)) | hidden, mask_id)
        states = model.bert(input_ids=shown, attention_mask=batch.attention).last_hidden_state
        return guess(model, states, guessed, batch.ids) + guess(model, states, hidden, batch.ids)

    return loss


def guess(
    model: Any, states: torch.Tensor, places: torch.Tensor, ids: torch.Tensor
) -> torch.Tensor:
    """Give the mean cross entropy at `places`; the head runs there only. Without places, zero."""
    if not places.any():
        return states.sum() * 0.0
    return torch.nn.functional.cross_entropy(model.cls(states[places]), ids[places])


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (
            Recipe(
                name="tiny-llama",
                title="A small Llama that tells stories with a known gender bias",
                learn_tokenizer=learn_byte_level_bpe,
                build=build_llama,
                loss=causal_loss,
                steps=3000,
                batch_size=32,
                learning_rate=2e-3,
            ),
            Recipe(
                name="tiny-bert",
                title="A small BERT that fills gaps in stories with a known gender bias",
                learn_tokenizer=learn_word_piece,
                build=build_bert,
                loss=masked_loss,
                steps=5500,
                batch_size=32,
                learning_rate=6e-4,
            ),
        )
    }
)

__all__ = ["RECIPES", "Batch", "Recipe"]
