"""The words that report.html and the model card explain."""

from workers.reports.document import GlossaryEntry

GLOSSARY = (
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
        "What the number changes by merely leaving the removed neurons out of the mean.",
    ),
    GlossaryEntry(
        "Behavioural part", "What the neurons that stay compute differently after the edit."
    ),
    GlossaryEntry(
        "Selection, held-out and control pairs",
        "Selection pairs chose the neurons; held-out pairs did not and test the result; control "
        "pairs swap a neutral word.",
    ),
    GlossaryEntry(
        "Controls", "Removal of as many other neurons: drawn at random, or the least important."
    ),
)
