"""Models and data sets from a hub, by huggingface_hub, into the cache where runs look for them.

Files that were begun go on where they were cut off. The token is the user's, as for `reodsl.share.hub`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx
import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

from reodsl.diagnostics import Problem, first_line, problem
from reodsl.ir.names import DATA_FILES
from reodsl.store.external import MODEL_FILES, hub_cache, hub_snapshot, local_copies

_FORMS = {"models": MODEL_FILES, "datasets": tuple(f"*{suffix}" for suffix in DATA_FILES)}


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


@dataclass(frozen=True, slots=True)
class Offer:
    """What a hub has of it: the commit, and the bytes of the files that runs read."""

    wanted: Wanted
    commit: str
    size: int


def look_up(wanted: Wanted) -> Offer:
    """Ask the hub what it has. Raises E0850 for a model and E0708 for a data set that it does not give."""
    with _telling(wanted):
        info = _api().repo_info(
            wanted.repo, repo_type=wanted.kind[:-1], revision=wanted.revision, files_metadata=True
        )
    sizes = {each.rfilename: each.size or 0 for each in getattr(info, "siblings", None) or ()}
    taken = filter_repo_objects(sizes, allow_patterns=list(_FORMS[wanted.kind]))
    return Offer(wanted, str(info.sha), sum(sizes[name] for name in taken))


def fetch(offer: Offer) -> Path:
    """Get the files that runs read, and say where they are. Raises as `look_up`; what was fetched stays."""
    wanted = offer.wanted
    with _telling(wanted):
        return Path(
            _api().snapshot_download(
                wanted.repo,
                repo_type=wanted.kind[:-1],
                revision=wanted.revision,
                cache_dir=hub_cache(),
                allow_patterns=list(_FORMS[wanted.kind]),
            )
        )


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
