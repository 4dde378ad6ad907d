"""The whole of a compiled spec: its study, what the command line changed, and where each setting came from."""

from __future__ import annotations

from reodsl.ir.base import IR
from reodsl.ir.study import Study


class Origin(IR):
    """The origin of a setting: file, line, and the docstring there that names its source."""

    path: str
    line: int
    doc: str = ""


class Change(IR):
    """A `--set` or `--amend` of the command line, shown in plan and report as not saved in a spec."""

    option: str
    target: str
    value: str


class Spec(IR):
    """A compiled spec. Only `study` is part of its identity.

    `origins` maps a dotted path, such as `reo_exp.optim.lr`, to where its value was set. `folder` is where relative
    data paths start. `sources` holds the text of every file that took part, by path, for report and provenance.
    """

    presentation = frozenset({"path", "folder", "changes", "origins", "sources", "params"})
    study: Study
    path: str = ""
    folder: str = ""
    params: dict[str, str] = {}
    changes: tuple[Change, ...] = ()
    origins: dict[str, Origin] = {}
    sources: dict[str, str] = {}
