"""Models and data sets from a hub, by huggingface_hub, into the cache where runs look for them.

Files go on inside where they were cut off, also after this process has gone, and come with the sizes and checksums that
the hub named before. What is fetched is one commit, and the branch's name leads to it once all of its files are there.
The token is the user's, as for `reodsl.share.hub`.
"""

from __future__ import annotations

import hashlib
import io
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
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers, filter_repo_objects  # type: ignore[attr-defined]
from huggingface_hub.utils._http import default_client_factory

from reodsl.diagnostics import Problem, first_line, problem
from reodsl.ir import Spec
from reodsl.ir.base import values_of
from reodsl.ir.data import HubData
from reodsl.ir.model import Hub, Model, Served
from reodsl.ir.names import DATA_FILES
from reodsl.store.external import MODEL_FILES, MODEL_TEXTS, UNFINISHED, hub_place, hub_snapshot, local_copies
from reodsl.store.files import hash_plain, hold, write_atomic

_FORMS = {"models": MODEL_FILES, "datasets": tuple(f"*{suffix}" for suffix in DATA_FILES)}
_CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHA256 = 64
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class Wanted:
    """A repository of a hub that a spec names. Of a served model's only `texts` are read, such as its tokenizer."""

    kind: Literal["models", "datasets"]
    repo: str
    revision: str | None = None
    texts: bool = False

    def is_here(self, folder: Path) -> bool:
        """Return whether a run would find it on this machine; `folder` is the spec's."""
        if self.kind == "datasets" and local_copies(self.repo, folder):
            return True
        snapshot = hub_snapshot(self.kind, self.repo, self.revision)
        mark = "tokenizer.json" if self.texts else "*.safetensors"
        return snapshot is not None and (self.kind == "datasets" or any(snapshot.glob(mark)))

    def follows_branch(self, folder: Path) -> Path | None:
        """Return the copy in the cache if no commit is named, so that its hub may have a newer one; else None."""
        if _COMMIT.fullmatch(self.revision or "") or (
            self.kind == "datasets" and local_copies(self.repo, folder)
        ):
            return None
        return hub_snapshot(self.kind, self.repo, self.revision)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository, with its checksum: SHA-256 of large ones, and git's of the others."""

    name: str
    checksum: str
    size: int


@dataclass(frozen=True, slots=True)
class Offer:
    """The commit of a hub, and its files that runs read."""

    wanted: Wanted
    commit: str
    files: tuple[RemoteFile, ...] = ()

    @property
    def size(self) -> int:
        """Return the bytes of its files."""
        return sum(each.size for each in self.files)


def list_repositories(spec: Spec) -> tuple[Wanted, ...]:
    """Return the repositories of hubs that a spec names, each once."""
    sources = [model.source for model in values_of(spec.study, Model)]
    asked = [Wanted("models", each.repo, each.revision) for each in sources if isinstance(each, Hub)]
    asked += [
        Wanted("models", each.tokenizer.repo, each.tokenizer.revision, texts=True)
        for each in sources
        if isinstance(each, Served) and isinstance(each.tokenizer, Hub)
    ]
    asked += [Wanted("datasets", each.repo, each.revision) for each in values_of(spec.study, HubData)]
    return tuple(dict.fromkeys(asked))


def look_up(wanted: Wanted) -> Offer:
    """Ask the hub for a repository's commit and files.

    Raises E0850 for a model and E0708 for a data set that it refuses.
    """
    with _telling(wanted):
        info: Any = _api().repo_info(
            wanted.repo, repo_type=wanted.kind[:-1], revision=wanted.revision, files_metadata=True
        )
        siblings = {each.rfilename: each for each in info.siblings or ()}
        names = filter_repo_objects(
            siblings, allow_patterns=list(MODEL_TEXTS if wanted.texts else _FORMS[wanted.kind])
        )
        if not _COMMIT.fullmatch(str(info.sha)):
            raise ValueError
        return Offer(wanted, str(info.sha), tuple(_file(wanted, siblings[name]) for name in names))


def _file(wanted: Wanted, sibling: Any) -> RemoteFile:
    """Return a file that the hub lists. Raises ValueError for one that has no place in a repository."""
    checksum = sibling.lfs.sha256 if sibling.lfs is not None else sibling.blob_id
    parts = sibling.rfilename.split("/")
    if (
        any(part in ("", ".", "..") or len(part) > _LONGEST_NAME for part in parts)
        or "\0" in sibling.rfilename
    ):
        raise ValueError
    if type(sibling.size) is not int or sibling.size < 0 or not _CHECKSUM.fullmatch(str(checksum)):
        why = f"the hub names no size or no checksum of `{sibling.rfilename[:80]}`"
        raise _failure(wanted, why, "HF_ENDPOINT names the hub; unset it for the usual one")
    return RemoteFile(sibling.rfilename, checksum, sibling.size)


def fetch(offer: Offer) -> Path:
    """Download the files that runs read, and return their folder. Raises as `look_up`; what was fetched stays.

    The cache has the layout of huggingface_hub, but by the names and checksums that were offered: `hf_hub_download`
    takes places in it from the hub's answer for each file, and follows them out of the cache.
    """
    huggingface_hub.set_client_factory(_open_client)
    wanted = offer.wanted
    place = hub_place(wanted.kind, wanted.repo)
    folder = place / "snapshots" / offer.commit
    with _telling(wanted):
        (place / "blobs").mkdir(parents=True, exist_ok=True)
        write_atomic(place / UNFINISHED, offer.commit.encode())
        for file in offer.files:
            shown = folder / file.name
            if not shown.exists():
                _fetch_file(offer, file, place / "blobs")
                shown.parent.mkdir(parents=True, exist_ok=True)
                shown.unlink(missing_ok=True)
                shown.symlink_to(os.path.relpath(place / "blobs" / file.checksum, shown.parent))
        if wanted.revision != offer.commit:
            ref = place / "refs" / (wanted.revision or "main")
            ref.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(ref, offer.commit.encode())
        (place / UNFINISHED).unlink(missing_ok=True)
    return folder


class _BoundedFile(io.BufferedWriter):
    """File that takes no byte more than its hub named."""

    def __init__(self, path: Path, file: RemoteFile) -> None:
        super().__init__(io.FileIO(path, "ab"))
        self.file = file

    def write(self, data: Any) -> int:
        """Write to the end. Raises OSError for more than the hub named."""
        if self.tell() + len(data) > self.file.size:
            raise OSError(
                f"`{self.file.name}` is larger than the {self.file.size:,} bytes that the hub named"
            )
        return super().write(data)


def _fetch_file(offer: Offer, file: RemoteFile, blobs: Path) -> None:
    """Download the missing rest of a file."""
    wanted = offer.wanted
    whole, part = blobs / file.checksum, blobs / f"{file.checksum}.reodsl-part"
    if whole.exists():
        return
    url = huggingface_hub.hf_hub_url(
        wanted.repo, file.name, repo_type=wanted.kind[:-1], revision=offer.commit, endpoint=_api().endpoint
    )
    with hold(part.with_suffix(".lock")) as ours:
        if not ours:
            raise _failure(wanted, "another process is fetching it", "wait for that one")
        with _BoundedFile(part, file) as begun:
            if begun.tell() < file.size:
                headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
                http_get(url, begun, resume_size=begun.tell(), headers=headers, displayed_filename=file.name)
            if begun.tell() < file.size:
                raise OSError(f"`{file.name}` ended early")
        if _checksum_of(part, file) != file.checksum:
            part.unlink()
            raise _failure(
                wanted, f"`{file.name}` came with another checksum", "the same command gets it anew"
            )
        part.replace(whole)
        part.with_suffix(".lock").unlink(missing_ok=True)


def _open_client() -> httpx.Client:
    """Return a client of huggingface_hub that unpacks nothing: what is compressed may have any size unpacked."""
    client = default_client_factory()
    client.event_hooks["response"].append(_refuse_compressed)
    return client


def _refuse_compressed(response: httpx.Response) -> None:
    """Raise OSError for a file that comes compressed. The hub's lists may."""
    asked = response.request.headers.get("Accept-Encoding")
    if asked == "identity" != response.headers.get("Content-Encoding", "identity"):
        raise OSError(f"`{response.request.url.path}` comes compressed, which nobody asked for")


def _checksum_of(path: Path, file: RemoteFile) -> str:
    """Return the checksum of a file, of the kind that the hub named."""
    if len(file.checksum) == _SHA256:
        return hash_plain(path)
    return hashlib.sha1(b"blob %d\0" % file.size + path.read_bytes(), usedforsecurity=False).hexdigest()


def _api() -> huggingface_hub.HfApi:
    return huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


@contextmanager
def _telling(wanted: Wanted) -> Iterator[None]:
    """Turn whatever the hub, the network or the disk refuses into one diagnostic."""
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
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError):
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
