"""Are a server's model files what they are used as: weights, draft, projector, adapter, MTP?

Judged from headers and tensor tables. A server finds these mistakes itself, minutes after production
was stopped; some of them it never tells.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

from preflight.box import Box, ModelFact, Vocabularies
from preflight.check import Check, Deadline, Explained
from preflight.files.exists import TOLD_BY_EXISTS
from preflight.files.paths import Trouble
from preflight.models.shard_names import shard_name
from preflight.verdict import BlastRadius, State, Verdict

_FEW_WORDS = 128
"""SPEC_VOCAB_MAX_SIZE_DIFFERENCE of llama.cpp (common/speculative.cpp, b11434)."""

_HEADS = frozenset({"eagle3", "dflash", "dspark", "gemma4-assistant"})
"""Architectures that only draft for another model, with or without words of their own."""

_ONE_MTP_LAYER = frozenset({"qwen35", "qwen35moe"})
"""llama.cpp aborts on a second one (GGML_ASSERT in src/models/qwen35.cpp, b11434)."""

_OTHER_THINGS = {
    "adapter": "a LoRA adapter",
    "mmproj": "a vision projector",
    "imatrix": "an importance matrix",
}
_OTHER_ARCHITECTURES = {"clip": "a vision projector", "controlvector": "a control vector"}
_ORDER = (State.FAIL, State.UNKNOWN, State.WARN)


def what_it_is(model: ModelFact) -> str:
    """What a file is that is no language model; empty for one that is."""
    architecture = model.keys.get("general.architecture")
    kind = model.keys.get("general.type")
    found = _OTHER_THINGS.get(str(kind)) or _OTHER_ARCHITECTURES.get(str(architecture))
    if found is None and not model.tensors and model.words is not None:
        found = "a vocabulary without weights"
    return found or ""


def is_bare(model: ModelFact) -> bool:
    """Whether a file is a header that says nothing: no tensor, no word, no architecture."""
    said = model.keys.get("general.architecture") or model.words is not None
    return not model.tensors and not said


def files_of(path: str) -> tuple[str, ...]:
    """All files of a model: the shards of a set, or the one file."""
    shards = shard_name(path)
    return shards.paths() if shards is not None else (path,)


class Roles(Check):
    """The model files of one arm, each for what it is used as."""

    id: ClassVar[str] = "file.role"
    radius: ClassVar[BlastRadius] = BlastRadius.FILES
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "file.role",
            reads="architecture, type, tensor names and the trained context of each model file, and "
            "the words of draft and model, all from headers",
            passes="each file is what it is used as, MTP layers are there where MTP is asked for, and "
            "the model was trained for the context",
            warns="draft and model differ in a few words; a header without any tensor, which says "
            "nothing of what it is",
            fails="a projector, an adapter or a bare vocabulary used as a model; a projector or an "
            "adapter that is none, or of another model; MTP asked for and no nextn tensors in any "
            "file; a draft with another vocabulary; more context than the model was trained for, "
            "which the server caps without a word",
            unknown="no architecture in the file, or a header that cannot be read",
            skipped="a file that is missing, broken or not readable, which file.exists or file.gguf "
            "tells about",
            remedies=(
                "name the right file",
                "use the MTP build of the model, or set draft",
                "ask for less context",
            ),
        ),
    )

    kind: Literal["roles"] = "roles"
    arm: str = "candidate"
    model: str
    draft: str | None = None
    mmproj: str | None = None
    adapters: tuple[str, ...] = ()
    mtp: bool = False
    """Whether several tokens are to be predicted by the model's own layers."""
    own_words: bool = True
    """Whether the draft has to speak the model's vocabulary."""
    context: int | None = None
    """Tokens that one request is to use; None where the training's own limit is asked for."""
    deadline_s: float = 10.0

    @property
    def subject(self) -> str:
        """The arm whose files they are."""
        return f"the model files of the {self.arm}"

    def look(self, box: Box) -> Verdict:
        """Every file by its header; the worst trouble first, and all of them in the evidence."""
        time = Deadline(self.deadline_s)
        model = box.model(files_of(self.model), within=time.left())
        if model.fault or model.bad:
            return self._unread(self.model, model)
        draft: ModelFact | None = None
        if self.draft is not None:
            draft = box.model(files_of(self.draft), within=time.left())
            if draft.fault or draft.bad:
                return self._unread(self.draft, draft)
        if is_bare(model):
            found = f"{_last(self.model)} is a bare header: it holds no tensors and says nothing"
            return self._says(State.WARN, found, remedy="see that it is the file that is meant")
        troubles = [
            *self._weights(model),
            *self._drafting(box, draft, time),
            *self._mtp(model, draft),
            *self._beside(box, model, time),
        ]
        described = f"{_last(self.model)}: {describe(model)}"
        if not troubles:
            return self._says(State.PASS, describe(model), evidence=(f"path: {self.model}",))
        worst = min(troubles, key=lambda trouble: _ORDER.index(trouble.state))
        others = tuple(trouble.found for trouble in troubles if trouble is not worst)
        return self._says(
            worst.state, worst.found, remedy=worst.remedy, evidence=(*others, described)
        )

    def _says(
        self, state: State, found: str, *, remedy: str = "", evidence: tuple[str, ...] = ()
    ) -> Verdict:
        wanted = "a language model"
        wanted += " with MTP layers" if self.mtp and self.draft is None else ""
        wanted += " and its draft" if self.draft is not None else ""
        wanted += f", for {self.context:,} tokens" if self.context else ""
        return self.says(state, found, wanted=wanted, remedy=remedy, evidence=evidence)

    def _unread(self, path: str, model: ModelFact) -> Verdict:
        """What is missing or broken is told by the check that looks for exactly that."""
        if model.bad or model.fault in TOLD_BY_EXISTS:
            other = "file.gguf" if model.bad else "file.exists"
            return self._says(State.SKIPPED, f"not looked at: see {other} for {path}")
        return self._says(
            State.UNKNOWN,
            f"the header of {path} cannot be read: {model.said or model.fault}",
            remedy="see whether the file system it lies on still answers",
        )

    def _weights(self, model: ModelFact) -> Iterator[Trouble]:
        name = _last(self.model)
        other = what_it_is(model)
        architecture = str(model.keys.get("general.architecture") or "")
        if other or architecture in _HEADS:
            found = f"{name} is {other or f'a draft head ({architecture})'}, and not a model"
            yield Trouble(State.FAIL, found, "name the weights as model")
        elif not architecture:
            found = f"{name} does not say which architecture it is"
            yield Trouble(State.UNKNOWN, found, "make the file again with a tool of today")
        trained = model.keys.get(f"{architecture}.context_length")
        if self.context and isinstance(trained, int) and 0 < trained < self.context:
            found = (
                f"{name} was trained for {trained:,} tokens, and the server gives a request no more "
                f"than that, without a word"
            )
            yield Trouble(State.FAIL, found, f"ask for context = {trained}, or use another model")

    def _drafting(self, box: Box, draft: ModelFact | None, time: Deadline) -> Iterator[Trouble]:
        if draft is None or self.draft is None:
            return
        name = _last(self.draft)
        if other := what_it_is(draft):
            yield Trouble(State.FAIL, f"{name} is {other}, and no draft model", "name the draft")
            return
        if not self.own_words or draft.keys.get("general.architecture") in _HEADS:
            return
        words = box.vocabularies(self.model, self.draft, within=time.left())
        trouble = _different_words(name, words)
        if trouble is not None:
            yield trouble

    def _mtp(self, model: ModelFact, draft: ModelFact | None) -> Iterator[Trouble]:
        """Proof are the tensors: a key may name layers that lie in another file."""
        if not self.mtp:
            return
        architecture = model.keys.get("general.architecture")
        heads = draft is not None and (
            draft.mtp or draft.keys.get("general.architecture") in _HEADS
        )
        if not model.mtp and not heads:
            key = model.keys.get(f"{architecture}.nextn_predict_layers")
            says = f" (its metadata says {key})" if isinstance(key, int) and key else ""
            name = _last(self.model)
            nobody = (
                f"neither {name} nor {_last(self.draft)} has" if self.draft else f"{name} has no"
            )
            found = f"the job asks for MTP, but {nobody} nextn tensors{says}"
            yield Trouble(State.FAIL, found, "use the MTP build of the model, or set draft")
        elif len(model.mtp) > 1 and architecture in _ONE_MTP_LAYER:
            found = f"{_last(self.model)} has {len(model.mtp)} MTP layers; {architecture} takes one"
            yield Trouble(State.FAIL, found, "use a file with one MTP layer")

    def _beside(self, box: Box, model: ModelFact, time: Deadline) -> Iterator[Trouble]:
        """The projector and the adapters."""
        if self.mmproj is not None:
            seen = box.model(files_of(self.mmproj), within=time.left())
            other = what_it_is(seen)
            if not (seen.fault or seen.bad) and other != _OTHER_THINGS["mmproj"]:
                found = (
                    f"{_last(self.mmproj)} is {other or describe(seen)}, and no vision projector"
                )
                yield Trouble(State.FAIL, found, "name the mmproj file of this model")
        for path in self.adapters:
            seen = box.model((path,), within=time.left())
            if seen.fault or seen.bad:
                continue
            if what_it_is(seen) != _OTHER_THINGS["adapter"]:
                yield Trouble(State.FAIL, f"{_last(path)} is no LoRA adapter", "name an adapter")
                continue
            own, its = (one.keys.get("general.architecture") for one in (model, seen))
            if own != its:
                found = f"{_last(path)} is an adapter for {its}, and the model is {own}"
                yield Trouble(State.FAIL, found, "name an adapter of this model")


def _different_words(name: str, words: Vocabularies) -> Trouble | None:
    if words.fault == "ENODATA":
        return Trouble(State.FAIL, words.said, "name a draft model with a vocabulary")
    if words.fault:
        found = f"the vocabulary of {name} cannot be compared: {words.said or words.fault}"
        return Trouble(State.UNKNOWN, found, "see whether the file system still answers")
    more = abs(words.one - words.other)
    if words.differ == 0 and more <= _FEW_WORDS:
        return None
    counted = (
        f"{words.other:,} words, {words.differ:,} of them other than the model's {words.one:,}"
    )
    if words.differ <= _FEW_WORDS and more <= _FEW_WORDS:
        found = f"{name} differs from the model in a few words ({counted})"
        return Trouble(State.WARN, found, "watch the acceptance: a draft in other words is refused")
    found = f"{name} speaks another vocabulary ({counted})"
    return Trouble(State.FAIL, found, "use a draft model of the same family")


def describe(model: ModelFact) -> str:
    """A model in a few words: "qwen35 Qwen3.8-27B, 64 layers and 1 for MTP, trained for 262,144"."""
    architecture = str(model.keys.get("general.architecture") or "of no architecture")
    name = model.keys.get("general.name")
    layers = len(model.blocks) - len(model.mtp)
    text = f"{architecture}{f' {name}' if isinstance(name, str) else ''}, {layers} layers"
    text += f" and {len(model.mtp)} for MTP" if model.mtp else ""
    trained = model.keys.get(f"{architecture}.context_length")
    return f"{text}, trained for {trained:,} tokens" if isinstance(trained, int) else text


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]
