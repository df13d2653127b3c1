"""The compliance sheet of a model card, in Markdown."""

from collections.abc import Iterator

from workers.reports.document import ReportDocument
from workers.reports.group_rates import GroupRates
from workers.reports.markdown import escape, fact_table, markdown_table, section
from workers.reports.wording import group_note, group_words

_STATEMENT = (
    "What was done and what was measured. This is no legal advice, and it does not judge the model "
    "by any law or standard."
)
_BELOW = " (below 0.8)"


def compliance_parts(document: ReportDocument) -> Iterator[str]:
    """Return the sections of the sheet; nothing without one."""
    sheet = document.compliance
    if sheet is None:
        return
    yield section("Compliance: scope", f"{_STATEMENT}\n\n{fact_table(sheet.scope)}")
    yield section("Compliance: data", _data(document))
    yield section("Compliance: metrics and thresholds", fact_table(sheet.measures))
    gaps = (f"- **{escape(gap.label)}**: {escape(gap.value)}" for gap in sheet.not_measured)
    yield section("Compliance: what was not measured", "\n".join(gaps))
    tables = [_group_table(group) for group in sheet.groups]
    if tables:
        body = "\n\n".join([escape(group_note(sheet.groups)), *tables])
        yield section("Compliance: groups beside each other", body)
    checks = (
        f"- **{escape(check.statement)}** {escape(check.who)}. {escape(check.how)}"
        for check in sheet.verification
    )
    yield section("Compliance: who can check what, and how", "\n".join(checks))


def _data(document: ReportDocument) -> str:
    if not document.data_used:
        return ""
    columns = ("Data", "Used for", "Amount", "Source", "Licence", "Personal data")
    rows = [
        (data.name, data.role, data.amount, data.source, data.licence, data.personal_data)
        for data in document.data_used
    ]
    return markdown_table(columns, rows)


def _group_table(group: GroupRates) -> str:
    columns = ("Group", "Number", "Before", "Ratio before", "After", "Ratio after")
    rows = [
        (
            line.group,
            line.number,
            _with_interval(line.before, line.before_interval),
            line.ratio_before + (_BELOW if line.below_before else ""),
            _with_interval(line.after, line.after_interval),
            line.ratio_after + (_BELOW if line.below_after else ""),
        )
        for line in group_words(group)
    ]
    parts = (f"**{escape(group.title)}**", escape(f"{group.measure} {group.note}"))
    return "\n\n".join([*parts, markdown_table(columns, rows)])


def _with_interval(value: str, interval: str) -> str:
    return f"{value} [{interval}]" if interval else value
