"""The page and the model card: complete, self-contained, safe, the same bytes each time."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
import yaml
from markdown_it import MarkdownIt

from tests.report_samples import sample_compliance, sample_document, sample_rows
from workers.reports.card import CardHeader, render_markdown
from workers.reports.document import (
    DataUse,
    Fact,
    GenerationPair,
    GlossaryEntry,
    Section,
    Table,
    Verification,
)
from workers.reports.html import render_html

HEADER = CardHeader(base_model="org/base", tags=("llama",), licence="apache-2.0")
HOSTILE = (
    '<script>alert("1")</script><img src=http://evil.test/x onerror=a()> | `x` [a](b) {{ 7*7 }}'
)


class PageReader(HTMLParser):
    """Collects tags, attributes and text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        """All text, blanks collapsed."""
        return " ".join("".join(self.texts).split())


class NestingReader(HTMLParser):
    """Keeps the elements that are open."""

    VOID = frozenset({"meta", "img", "br", "link"})

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        del attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def hostile_document():
    """Return a report in which every free text tries to become markup."""
    return sample_document(
        title=HOSTILE,
        subtitle=HOSTILE,
        verdict=HOSTILE,
        changed=(Fact(HOSTILE, HOSTILE),),
        warnings=(HOSTILE,),
        limits=(HOSTILE,),
        rows=(replace(sample_rows()[0], group=HOSTILE, benchmark=HOSTILE),),
        glossary=(GlossaryEntry(HOSTILE, HOSTILE),),
        generations=(GenerationPair(prompt=HOSTILE, before=HOSTILE, after="x", label=HOSTILE),),
        tables=(Table(title=HOSTILE, columns=(HOSTILE,), rows=((HOSTILE,),)),),
        in_short=(HOSTILE,),
        sections=(Section(title=HOSTILE, text=(HOSTILE,)),),
        data_used=(DataUse(name=HOSTILE, role=HOSTILE, licence=HOSTILE, personal_data=HOSTILE),),
        compliance=replace(
            sample_compliance(),
            scope=(Fact(HOSTILE, HOSTILE),),
            not_measured=(Fact(HOSTILE, HOSTILE),),
            verification=(Verification(statement=HOSTILE, who=HOSTILE, how=HOSTILE),),
        ),
        reproduce=replace(
            sample_document().reproduce,
            command=HOSTILE,
            resolved_spec={"prompt": f"```\n{HOSTILE}</code></pre>"},
        ),
    )


@pytest.fixture(scope="module")
def page():
    return PageReader(render_html(sample_document()))


def test_page_loads_nothing(page):
    # A link loads nothing before somebody follows it; anything else that has an address does.
    loads = [
        value
        for tag, name, value in page.attributes
        if name in {"src", "srcset", "href", "poster", "data", "action", "style"} and tag != "a"
    ]

    assert loads
    assert all(value.startswith("data:image/png;base64,") for value in loads)
    assert not {"script", "link", "iframe", "object", "embed", "form"} & set(page.tags)


def test_style_of_the_page_loads_nothing():
    style = re.search(r"<style>(.*?)</style>", render_html(sample_document()), re.DOTALL)[1]

    assert "url(" not in style
    assert "@import" not in style
    assert "<" not in style


def test_page_embeds_the_pictures_with_a_description():
    document = sample_document()

    attributes = PageReader(render_html(document)).attributes

    sources = {
        value.partition(",")[2] for tag, name, value in attributes if (tag, name) == ("img", "src")
    }
    descriptions = {value for tag, name, value in attributes if (tag, name) == ("img", "alt")}
    assert sources == {base64.b64encode(p.png).decode() for p in document.figures}
    assert descriptions == {picture.alt for picture in document.figures}
    assert "" not in descriptions


def test_page_gives_interval_and_units_with_each_row(page):
    table = page.text[page.text.index("All measured results") :]

    assert table.count("n = 12 pairs") == len(sample_rows())
    assert "95 % bootstrap intervals over the unit named in each row" in page.text


def test_page_names_each_verdict_beside_its_row(page):
    table = page.text[page.text.index("All measured results") :]

    assert table.count("race") >= 2
    assert "+6.5 %" in table
    assert "✗ worse" in table
    assert "○ no reliable change" in table


def test_page_says_each_result_once(page):
    assert page.text.count("+6.5 %") == 1


def test_page_with_many_rows_says_how_many_verdicts_are_chance():
    page = PageReader(render_html(sample_document(rows=sample_rows() * 5)))

    assert "about 2 of them would be called better or worse by chance" in page.text


def test_page_marks_the_first_word_that_differs():
    html = render_html(sample_document())

    assert "was <mark>a</mark> burglar" in html
    assert "was <mark>lost,</mark> so" in html


@pytest.mark.parametrize(
    "text",
    [
        "What was changed",
        "15 of 1536 in each of 30 layers",
        "The selection is not distinguishable from random removal.",
        "position_shift = 1",
        "Religion, disability and age were not measured.",
        "How differently the model reacts inside to the two prompts of a pair.",
        "debias run -f job.yaml --wait",
        '"fraction": 0.01',
        "ab" * 32,
        "torch 2.13.0",
    ],
)
def test_page_says_all_that_the_document_holds(page, text):
    assert text in page.text


def test_page_without_controls_says_so_plainly():
    page = PageReader(render_html(sample_document(controls=None)))

    assert "No controls were run." in page.text


def test_page_of_a_bare_document_has_no_empty_sections():
    document = sample_document(
        rows=(), figures=(), generations=(), tables=(), warnings=(), limits=(), glossary=(),
        intended_use=(), data_used=(), headline=(), in_short=(), findings=(), sections=(),
        compliance=None, references=(),
    )  # fmt: skip

    page = PageReader(render_html(document))

    headings = page.tags.count("h2")
    assert headings == 4
    assert "Nothing was measured." in page.text


def test_hostile_text_stays_text_on_the_page():
    page = PageReader(render_html(hostile_document()))

    assert "script" not in page.tags
    assert not any(name.startswith("on") for _, name, _ in page.attributes)
    assert HOSTILE in page.text


def test_hostile_text_stays_text_on_the_card():
    card = render_markdown(hostile_document(), HEADER)

    html = MarkdownIt("commonmark").enable("table").render(card.split("\n---\n", 1)[1])
    page = PageReader(html)
    assert not {"script", "img", "a"} & set(page.tags)
    assert HOSTILE in page.text


def test_page_is_the_same_bytes_each_time():
    assert render_html(sample_document()) == render_html(sample_document())


def test_card_is_the_same_bytes_each_time():
    assert render_markdown(sample_document(), HEADER) == render_markdown(sample_document(), HEADER)


def test_a_spec_with_nan_is_refused():
    reproduce = replace(sample_document().reproduce, resolved_spec={"x": float("nan")})

    with pytest.raises(ValueError, match="not JSON compliant"):
        render_html(sample_document(reproduce=reproduce))


def test_card_header_is_what_model_hubs_read():
    card = render_markdown(sample_document(), HEADER)

    header = yaml.safe_load(card.split("---\n")[1])

    assert header["base_model"] == "org/base"
    assert header["library_name"] == "transformers"
    assert header["license"] == "apache-2.0"
    assert header["tags"] == ["fairness_pruning", "llama"]


def test_card_header_holds_values_before_and_after():
    row = sample_rows()[0]

    card = render_markdown(sample_document(rows=(row,)), HEADER)

    (result,) = yaml.safe_load(card.split("---\n")[1])["model-index"][0]["results"]
    assert [metric["value"] for metric in result["metrics"]] == [row.before, row.after]


def test_card_tables_have_one_line_a_row():
    card = render_markdown(sample_document(), HEADER)

    html = MarkdownIt("commonmark").enable("table").render(card.split("\n---\n", 1)[1])

    page = PageReader(html)
    assert page.text.count("n = 12 pairs") == len(sample_rows())
    assert "2 worse" in page.text


def test_every_scrolling_table_and_picture_can_be_reached_by_keyboard_and_has_a_name(page):
    pairs = [(name, value) for _, name, value in page.attributes]

    assert pairs.count(("class", "scroll")) == pairs.count(("role", "region")) > 0
    assert all(value for name, value in pairs if name == "aria-label")


def test_headings_go_down_one_level_at_a_time(page):
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]

    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))


def test_ids_on_the_page_are_unique(page):
    ids = [value for _, name, value in page.attributes if name == "id"]

    assert ids
    assert len(ids) == len(set(ids))


def test_every_table_has_a_caption_and_heads_with_a_scope(page):
    heads = page.tags.count("th")
    scopes = [value for tag, name, value in page.attributes if (tag, name) == ("th", "scope")]

    assert page.tags.count("caption") == page.tags.count("table")
    assert heads == len(scopes)


def test_every_element_that_is_opened_is_closed():
    reader = NestingReader()

    reader.feed(render_html(sample_document()))

    assert reader.open == []


def test_metric_is_told_with_meaning_direction_and_finding(page):
    told = page.text[page.text.index("Each metric in a sentence") :]

    assert "How far the two prompts of a pair lie apart. Lower is better." in told
    assert "On 12 pairs: it got worse." in told


def test_prompts_of_a_pair_stand_side_by_side_with_the_swapped_word_marked():
    html = render_html(sample_document())

    assert 'The <b class="swap">boy</b> was a nurse' in html
    assert 'The <b class="swap">girl</b> was a nurse' in html
    assert html.count('<article class="generation">') == 2
    assert "After, changed from token 2 on" in html


def test_a_picture_that_a_section_names_stands_there_and_only_there():
    html = render_html(sample_document())

    section = html[html.index("<h2>Where it grows</h2>") :]
    section = section[: section.index("</section>")]
    assert "plots/amplification.json" in section
    assert html.count("plots/amplification.json") == 1


def test_compliance_sheet_says_what_was_not_measured_on_page_and_card(page):
    card = render_markdown(sample_document(), HEADER)

    sheet = page.text[page.text.index("Compliance sheet") :]
    gaps = sheet[sheet.index("What was not measured") :]
    assert gaps.index("Other languages") < gaps.index("Only English prompts were used.")
    assert "## Compliance: what was not measured" in card
    assert "Only English prompts were used." in card


def test_compliance_sheet_starts_on_a_page_of_its_own():
    style = re.search(r"<style>(.*?)</style>", render_html(sample_document()), re.DOTALL)[1]

    printed = style[style.index("@media print") :]
    assert ".compliance { break-before: page; }" in printed


def test_group_table_shows_ratios_and_marks_those_below_four_fifths(page):
    start = page.text.index("Invited to an interview")
    table = page.text[start:].replace(" ", "")

    dash = "\N{EN DASH}"
    assert "women200applicants0.3000.50below0.80.4500.380to0.5200.90" in table
    assert "men210applicants0.6001.000.5001.00" in table
    assert f"notstated12applicants0.900{dash}0.900{dash}" in table


def test_names_between_backticks_are_set_as_code():
    assert "Compare <code>sha256sum FILE</code> with" in render_html(sample_document())


@pytest.mark.parametrize("claim", ["compliant with", "certified", "lawful"])
def test_sheet_makes_no_legal_claim(page, claim):
    assert claim not in page.text.lower()


def test_report_of_one_model_has_no_verdicts_and_no_controls():
    page = PageReader(render_html(sample_document(compares=False)))

    assert "What was measured" in page.text
    assert "All measured results" not in page.text
    assert "What the controls say" not in page.text


@pytest.mark.parametrize(
    ("rows", "is_folded", "folding"),
    [(5, False, None), (5, True, "short"), (30, False, "short"), (30, True, "long"),
     (41, False, "long")],
)  # fmt: skip
def test_long_tables_are_folded_and_the_longest_are_not_printed(rows, is_folded, folding):
    table = Table(
        title="Many", columns=("Number",), rows=tuple((n,) for n in range(rows)),
        is_folded=is_folded,
    )  # fmt: skip

    html = render_html(sample_document(tables=(table,)))

    annex = html[html.index('id="details"') :]
    found = re.search(r'<details class="(\w+)">', annex)
    assert (found and found[1]) == folding
    assert ("not printed" in annex) == (folding == "long")
