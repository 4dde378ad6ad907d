"""Models and data sets from a hub, downloaded by huggingface_hub into the cache that runs read.

A download is of one commit. The branch's name points to this commit only after all files are complete. huggingface_hub
resumes an interrupted download, and uses the user's token: `HF_TOKEN`, or the token that `hf auth login` stored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

from reodsl.diagnostics import Problem, first_line, problem
from reodsl.ir import Spec
from reodsl.ir.base import values_of
from reodsl.ir.data import HubData
from reodsl.ir.model import Hub, Model, ServedModel
from reodsl.ir.names import DATA_FILES
from reodsl.store.external import (
    MODEL_FILES,
    MODEL_TEXTS,
    UNFINISHED,
    hub_cache,
    hub_place,
    hub_snapshot,
    local_copy,
)
from reodsl.store.files import write_atomic

_FORMS = {"models": MODEL_FILES, "datasets": tuple(f"*{suffix}" for suffix in DATA_FILES)}
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubRepo:
    """A repository of a hub that a spec names."""

    kind: Literal["models", "datasets"]
    repo: str
    revision: str | None = None
    """Branch, tag or commit; None for the main branch."""
    texts_only: bool = False
    """True if only the tokenizer and other small text files are read, as for a served model."""

    @property
    def patterns(self) -> list[str]:
        """Return the glob patterns of the files that runs read."""
        return list(MODEL_TEXTS if self.texts_only else _FORMS[self.kind])

    def is_copied(self, folder: Path) -> bool:
        """Return whether the repository is a data set with a local copy in the spec's folder."""
        return self.kind == "datasets" and local_copy(self.repo, folder) is not None

    def is_here(self, folder: Path) -> bool:
        """Return whether a run would find the repository's files on this machine.

        It would in the hub's cache, or for a data set in a local copy. Models also need their weights, or with
        `texts_only` their tokenizer.

        Args:
            folder: folder of the spec.
        """
        if self.is_copied(folder):
            return True
        snapshot = hub_snapshot(self.kind, self.repo, self.revision)
        mark = "tokenizer.json" if self.texts_only else "*.safetensors"
        return snapshot is not None and (self.kind == "datasets" or any(snapshot.glob(mark)))

    def follows_branch(self, folder: Path) -> Path | None:
        """Return the folder of the cached copy if the repository is named by a branch or tag, else None.

        The hub may have a newer commit of a branch than the cache.

        Args:
            folder: folder of the spec.

        Returns:
            Folder in the hub's cache; None if the spec names a commit, if nothing is cached, or for a data set with a
            local copy.
        """
        if _COMMIT.fullmatch(self.revision or "") or self.is_copied(folder):
            return None
        return hub_snapshot(self.kind, self.repo, self.revision)


@dataclass(frozen=True, slots=True)
class Download:
    """The commit of a hub's repository, and the total bytes of its files that runs read."""

    repository: HubRepo
    commit: str
    size: int


def list_repositories(spec: Spec) -> tuple[HubRepo, ...]:
    """Return the hub repositories that a spec names, each once: models, tokenizers of served models, and data sets.

    A served model has no repository of weights here, so only its tokenizer's is listed.
    """
    sources = [model.source for model in values_of(spec.study, Model)]
    repositories = [
        HubRepo("models", source.repo, source.revision) for source in sources if isinstance(source, Hub)
    ]
    repositories += [
        HubRepo("models", source.tokenizer.repo, source.tokenizer.revision, texts_only=True)
        for source in sources
        if isinstance(source, ServedModel) and isinstance(source.tokenizer, Hub)
    ]
    repositories += [
        HubRepo("datasets", source.repo, source.revision) for source in values_of(spec.study, HubData)
    ]
    return tuple(dict.fromkeys(repositories))


def look_up(repository: HubRepo) -> Download:
    """Ask the hub for a repository's commit and for the total size of the files that runs read.

    Raises:
        Problem: E0850 if the hub refuses or cannot be reached.
    """
    with _report_failures(repository):
        info: Any = _api().repo_info(
            repository.repo, repo_type=repository.kind[:-1], revision=repository.revision, files_metadata=True
        )
        sizes = {file.rfilename: int(file.size) for file in info.siblings or ()}
        if not _COMMIT.fullmatch(str(info.sha)):
            raise ValueError
        names = filter_repo_objects(sizes, allow_patterns=repository.patterns)
        return Download(repository, str(info.sha), sum(sizes[name] for name in names))


def fetch(offer: Download) -> Path:
    """Download the files that runs read, and return their folder in the hub's cache.

    The branch's name points to the commit only after all files are complete. An interrupted download leaves its files
    in the cache, where the next download resumes.

    Args:
        offer: the commit, from `look_up`.

    Raises:
        Problem: E0850 if the hub refuses or cannot be reached, or the disk is full.
    """
    repository = offer.repository
    cached = hub_place(repository.kind, repository.repo)
    with _report_failures(repository):
        cached.mkdir(parents=True, exist_ok=True)
        write_atomic(cached / UNFINISHED, offer.commit.encode())
        folder = huggingface_hub.snapshot_download(
            repository.repo,
            repo_type=repository.kind[:-1],
            revision=offer.commit,
            cache_dir=hub_cache(),
            endpoint=_api().endpoint,
            allow_patterns=repository.patterns,
        )
        if repository.revision != offer.commit:
            ref = cached / "refs" / (repository.revision or "main")
            ref.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(ref, offer.commit.encode())
        (cached / UNFINISHED).unlink(missing_ok=True)
    return Path(folder)


def _api() -> huggingface_hub.HfApi:
    """Return a client of the hub that HF_ENDPOINT names, or of the default hub."""
    return huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


@contextmanager
def _report_failures(repository: HubRepo) -> Iterator[None]:
    """Report failures of the hub, the network or the disk in a `with` block as E0850.

    An answer that is not of the hub's form, such as one without a commit, is also E0850.
    """
    try:
        yield
    except HfHubHTTPError as refused:
        status = refused.response.status_code if refused.response is not None else 0
        raise _refuse(
            repository, *_REFUSALS.get(status, (f"the hub answers {status}", "try again later"))
        ) from None
    except (httpx.HTTPError, LocalEntryNotFoundError, OSError) as fault:
        why = f"{first_line(fault.__cause__ or fault, type(fault).__name__)}"
        raise _refuse(
            repository, why, "run the same command to resume; HF_ENDPOINT sets another hub"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError):
        raise _refuse(
            repository,
            "the server at this address is not a hub",
            "HF_ENDPOINT sets the address; unset it for the default hub",
        ) from None


_REFUSALS = {
    401: ("the hub needs a token, or has no such repository", "check the name, and log in: `hf auth login`"),
    403: (
        "this token may not read the repository",
        "accept the terms on the repository's page, or log in as a user with access",
    ),
    404: ("the hub has no such repository or revision", "check `hub(…)` in the spec"),
}


def _refuse(repository: HubRepo, why: str, remedy: str) -> Problem:
    """Return E0850 for a repository that cannot be fetched.

    Args:
        repository: the repository.
        why: the reason.
        remedy: what to do instead.
    """
    noun = "model" if repository.kind == "models" else "data set"
    revision = f" at {repository.revision}" if repository.revision else ""
    return problem(
        "E0850",
        f"the {noun} `{repository.repo}`{revision} cannot be fetched: {why}",
        where=_api().endpoint,
        help=remedy,
    )
