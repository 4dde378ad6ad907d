"""Models and data sets from a hub, by huggingface_hub, into the cache where runs look for them.

Large files go on inside where they were cut off, also after this process has gone; huggingface_hub alone begins them
anew. What is fetched is one commit, and the branch's name leads to it once all of its files are there. The token is the
user's, as for `reodsl.share.hub`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx
import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers, filter_repo_objects  # type: ignore[attr-defined]

from reodsl.diagnostics import Problem, first_line, problem
from reodsl.ir import Spec
from reodsl.ir.base import values_of
from reodsl.ir.data import HubData
from reodsl.ir.model import Hub
from reodsl.ir.names import DATA_FILES
from reodsl.store.external import MODEL_FILES, UNFINISHED, hub_cache, hub_place, hub_snapshot, local_copies
from reodsl.store.files import write_atomic
from reodsl.store.locks import hold
from reodsl.store.plain import hash_plain

_FORMS = {"models": MODEL_FILES, "datasets": tuple(f"*{suffix}" for suffix in DATA_FILES)}
_CHECKSUM = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A repository of a hub that a spec names."""

    kind: Literal["models", "datasets"]
    repo: str
    revision: str | None = None

    def is_here(self, folder: Path) -> bool:
        """Whether a run would find it on this machine; `folder` is the spec's."""
        if self.kind == "datasets" and local_copies(self.repo, folder):
            return True
        snapshot = hub_snapshot(self.kind, self.repo, self.revision)
        return snapshot is not None and (self.kind == "datasets" or any(snapshot.glob("*.safetensors")))

    def follows_branch(self, folder: Path) -> Path | None:
        """The copy in the cache of what no commit is named for, which its hub may have moved on from; else None."""
        if _COMMIT.fullmatch(self.revision or "") or (
            self.kind == "datasets" and local_copies(self.repo, folder)
        ):
            return None
        return hub_snapshot(self.kind, self.repo, self.revision)


@dataclass(frozen=True, slots=True)
class Large:
    """A file whose hub names its checksum, so that it can go on where it was cut off."""

    name: str
    checksum: str
    size: int


@dataclass(frozen=True, slots=True)
class Offer:
    """What a hub has of it: the commit, the bytes of the files that runs read, and those of them that are large."""

    wanted: Wanted
    commit: str
    size: int
    large: tuple[Large, ...] = ()


def named_by(spec: Spec) -> tuple[Wanted, ...]:
    """The repositories of hubs that a spec names, each once."""
    asked = [Wanted("models", each.repo, each.revision) for each in values_of(spec.study, Hub)]
    asked += [Wanted("datasets", each.repo, each.revision) for each in values_of(spec.study, HubData)]
    return tuple(dict.fromkeys(asked))


def look_up(wanted: Wanted) -> Offer:
    """Ask the hub what it has. Raises E0850 for a model and E0708 for a data set that it does not give."""
    with _telling(wanted):
        info = _api().repo_info(
            wanted.repo, repo_type=wanted.kind[:-1], revision=wanted.revision, files_metadata=True
        )
    files = {each.rfilename: each for each in getattr(info, "siblings", None) or ()}
    taken = [files[name] for name in filter_repo_objects(files, allow_patterns=list(_FORMS[wanted.kind]))]
    large = tuple(
        Large(each.rfilename, each.lfs.sha256, each.size or 0)
        for each in taken
        if each.lfs is not None and _CHECKSUM.fullmatch(each.lfs.sha256)
    )
    return Offer(wanted, str(info.sha), sum(each.size or 0 for each in taken), large)


def fetch(offer: Offer) -> Path:
    """Get the files that runs read, and say where they are. Raises as `look_up`; what was fetched stays."""
    wanted = offer.wanted
    place = hub_place(wanted.kind, wanted.repo)
    # Each of its retries would be a warning; what all of them come to is told once.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    with _telling(wanted):
        (place / "blobs").mkdir(parents=True, exist_ok=True)
        write_atomic(place / UNFINISHED, offer.commit.encode())
        for file in offer.large:
            _fetch_large(offer, file, place / "blobs")
        folder = Path(
            _api().snapshot_download(
                wanted.repo,
                repo_type=wanted.kind[:-1],
                revision=offer.commit,
                cache_dir=hub_cache(),
                allow_patterns=list(_FORMS[wanted.kind]),
            )
        )
        if wanted.revision != offer.commit:
            ref = place / "refs" / (wanted.revision or "main")
            ref.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(ref, offer.commit.encode())
        (place / UNFINISHED).unlink(missing_ok=True)
    return folder


def _fetch_large(offer: Offer, file: Large, blobs: Path) -> None:
    """Get what is missing of a file, under the name by which huggingface_hub finds it."""
    whole, part = blobs / file.checksum, blobs / f"{file.checksum}.reodsl-part"
    wanted = offer.wanted
    if whole.exists():
        return
    with hold(part.with_suffix(".lock")) as ours:
        if not ours:
            raise _failure(wanted, "another process is fetching it", "wait for that one")
        url = huggingface_hub.hf_hub_url(
            wanted.repo,
            file.name,
            repo_type=wanted.kind[:-1],
            revision=offer.commit,
            endpoint=_api().endpoint,
        )
        with part.open("ab") as begun:
            http_get(
                url,
                begun,
                resume_size=begun.tell(),
                headers=build_hf_headers(),
                expected_size=file.size,
                displayed_filename=file.name,
            )
        if hash_plain(part) != file.checksum:
            part.unlink()
            raise _failure(
                wanted, f"`{file.name}` came with another checksum", "the same command gets it anew"
            )
        part.replace(whole)
        part.with_suffix(".lock").unlink(missing_ok=True)


def _api() -> huggingface_hub.HfApi:
    return huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


@contextmanager
def _telling(wanted: Wanted) -> Iterator[None]:
    """One diagnostic for whatever the hub, the network or the disk refuses."""
    try:
        yield
    except HfHubHTTPError as refused:
        status = refused.response.status_code if refused.response is not None else 0
        raise _failure(
            wanted, *_REFUSALS.get(status, (f"the hub answers {status}", "try again later"))
        ) from None
    except (httpx.HTTPError, LocalEntryNotFoundError, OSError) as fault:
        why = f"{first_line(fault.__cause__ or fault, type(fault).__name__)}"
        raise _failure(
            wanted, why, "the same command goes on from here; HF_ENDPOINT names another hub"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _failure(
            wanted, "what answers there is no hub", "HF_ENDPOINT names the hub; unset it for the usual one"
        ) from None


_REFUSALS = {
    401: ("the hub wants a token, or has no such repository", "check the name, and log in: `hf auth login`"),
    403: (
        "the hub does not let this token read it",
        "accept its terms on its page, or log in as who may read it",
    ),
    404: ("the hub has no such repository or revision", "check `hub(…)` in the spec"),
}


def _failure(wanted: Wanted, why: str, remedy: str) -> Problem:
    code = "E0850" if wanted.kind == "models" else "E0708"
    what = "model" if wanted.kind == "models" else "data set"
    revision = f" at {wanted.revision}" if wanted.revision else ""
    return problem(
        code,
        f"the {what} `{wanted.repo}`{revision} cannot be fetched: {why}",
        where=_api().endpoint,
        help=remedy,
    )
