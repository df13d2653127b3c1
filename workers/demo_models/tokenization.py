"""Learn the tokenizers of the demo models from their text; the same text gives the same bytes."""

import re
from collections import Counter
from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import BertTokenizer, PreTrainedTokenizerFast

from workers.data.demo_world import all_names

BPE_SIZE = 2560
# As if every name stood in this many more texts, so that each is one token behind a space.
_NAME_WEIGHT = 60
WORD_PIECE_SIZE = 1536

BOS, EOS, CAUSAL_PAD = "<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"
PAD, UNKNOWN, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"

# What BertPreTokenizer does to this text: words, and every mark on its own.
_WORD = re.compile(r"\w+|[^\w\s]")


def learn_byte_level_bpe(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Learn a byte-level BPE like that of Llama 3: BOS is put in front, EOS is not appended."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = [f" {name}" for name in all_names()] * _NAME_WEIGHT
    trainer = _bpe_trainer(BPE_SIZE, [BOS, EOS, CAUSAL_PAD])
    tokenizer.train_from_iterator([*texts, *names], trainer)
    begin = [(BOS, tokenizer.token_to_id(BOS))]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=begin
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=CAUSAL_PAD,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


def learn_word_piece(texts: Sequence[str]) -> BertTokenizer:
    """Learn a cased WordPiece in which every word of `texts` is one token.

    The library's own trainer numbers continuing pieces in the order of a hash table, which
    differs from run to run. So the pieces are taken from a BPE over the words, which does not.
    """
    words = Counter(word for text in texts for word in _WORD.findall(text))
    letters = sorted({letter for word in words for letter in word})
    pieces = [*letters, *(f"##{letter}" for letter in letters), *sorted(words)]
    vocabulary = list(dict.fromkeys([PAD, UNKNOWN, CLS, SEP, MASK, *pieces]))
    known = set(vocabulary)
    more = [piece for piece in _continuing_pieces(words) if piece not in known]
    vocabulary += more[: max(0, WORD_PIECE_SIZE - len(vocabulary))]
    ids = {piece: index for index, piece in enumerate(vocabulary)}
    return BertTokenizer(vocab=ids, do_lower_case=False, strip_accents=False)


def _continuing_pieces(words: Counter[str]) -> list[str]:
    """List pieces inside of words by how often words have them, ties in alphabetical order."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(sorted(words), _bpe_trainer(WORD_PIECE_SIZE, []))
    counts: Counter[str] = Counter()
    for word in words:
        counts.update(f"##{piece}" for piece in tokenizer.encode(word).tokens[1:])
    return sorted(counts, key=lambda piece: (-counts[piece], piece))


def _bpe_trainer(size: int, special: list[str]) -> BpeTrainer:
    return BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()) if special else [],
        show_progress=False,
    )
