"""The words that report.html and the model card explain."""

from dataclasses import replace

from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.selecting.controls import worded
from workers.reports.document import GlossaryEntry

_OF_THE_CHOICE = frozenset({"Selection, held-out and control pairs", "Controls"})
GLOSSARY = (
    GlossaryEntry(
        "Layer, neuron",
        "A language model passes text through a stack of layers. A neuron is one of the many small "
        "computing units in a layer; here always one of its MLP, the part of a layer that works "
        "on each token by itself.",
    ),
    GlossaryEntry(
        "Activation", "The number that a unit inside the model gives for one token of a text."
    ),
    GlossaryEntry("Token", "A piece of text as the model reads it: a word or a part of one."),
    GlossaryEntry(
        "Prompt pair",
        "Two prompts that differ in nothing but a demographic word, or a neutral one.",
    ),
    GlossaryEntry(
        "Activation difference",
        "How far the inner values of the model for the two prompts of a pair lie apart, as a mean "
        "absolute difference.",
    ),
    GlossaryEntry(
        "Mechanical part",
        "What the number changes by merely leaving the edited parts out of the mean.",
    ),
    GlossaryEntry("Behavioural part", "What the other parts compute differently after the edit."),
    GlossaryEntry(
        "Selection, held-out and control pairs",
        "Selection pairs chose the neurons; held-out pairs did not and test the result; control "
        "pairs swap a neutral word.",
    ),
    GlossaryEntry(
        "Controls",
        "The same edit of as many neurons chosen in another way: drawn at random, or the least "
        "important. Some of them may be those of the selection as well.",
    ),
    GlossaryEntry(
        "95 % interval",
        "The range in which the true mean lies if the pairs are typical: a method that gives such "
        "ranges is right in about 95 of 100 cases.",
    ),
    GlossaryEntry(
        "p",
        "How often a change at least as large would come about if nothing had changed. Small "
        "values speak against chance.",
    ),
    GlossaryEntry(
        "Perplexity", "How surprised a model is by a text. Lower is better, 1 is no surprise."
    ),
    GlossaryEntry(
        "SHA-256, digest",
        "A fingerprint of a file. Two files with the same digest are the same, byte for byte.",
    ),
)


def glossary(evidence: Evidence) -> tuple[GlossaryEntry, ...]:
    """Explain the words of an edit, with the name of what it took out."""
    return tuple(
        replace(entry, sentence=worded(entry.sentence, evidence.edited_parts))
        if entry.term in _OF_THE_CHOICE
        else entry
        for entry in GLOSSARY
    )
