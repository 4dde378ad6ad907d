"""List what a study declares, those inside its sweeps too."""

from __future__ import annotations

from reodsl.syntax import tree


def declarations(study: tree.Decl) -> list[tree.Decl]:
    """The arms and frontiers that a study writes, those of its sweeps once each."""
    listed: list[tree.Decl] = []
    for each in study.block.items if study.block is not None else ():
        inside = each.block.items if isinstance(each, tree.Nested) and each.name.name == "arms" else (each,)
        listed += (one for one in inside if isinstance(one, tree.Decl))
    return listed
