"""Will it fit? What a llama-server puts on the GPU, in parts, and which change would make it fit.

Pure but for the headers it asks the Box for. Whether the memory is there is `preflight.gpu.budget`'s to say.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, Field

from preflight.box import Box, ModelFact
from preflight.check import Deadline
from preflight.models.memory import Cells, Shape, cells
from preflight.models.model import GPU
from preflight.models.roles import files_of
from preflight.wording import memory

_MIB = 1 << 20
DRIVER_MIB = 400
"""What a CUDA context with its kernels takes on each GPU: 300 to 600 MiB have been seen."""
_SAFETY = 1.1
"""On what was learned or guessed of compute buffers."""
_STEP = 256


class Learned(BaseModel):
    """The compute buffers of one start, as the server's own log told them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    architecture: str
    layers: int
    width: int
    cells: int
    batch: int
    contexts: int = 1
    """2 where a draft or MTP context had its own."""
    compute_mib: int
    """On the GPU that had most of it, all contexts together."""
    run: str = ""


class Load(BaseModel):
    """One llama-server as its command line has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arm: str = "candidate"
    model: str
    draft: str | None = None
    mmproj: str | None = None
    adapters: tuple[str, ...] = ()
    context: int = 0
    """Tokens for all slots together; 0 for what the model was trained for."""
    slots: int = 1
    unified: bool = False
    key: str = "f16"
    value: str = "f16"
    draft_key: str = "f16"
    draft_value: str = "f16"
    full_window: bool = False
    batch: int = 512
    flash: bool = True
    on_gpu: int | None = None
    """Layers that go to the GPU; None for all."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Names of tensors as regular expressions, each with "host" or "gpu"; the first one counts."""
    draft_on_gpu: int | None = None
    draft_overrides: tuple[tuple[str, str], ...] = ()
    untold: str = ""
    """Why its command line does not tell how much goes where; empty where it does."""
    cache_on_host: bool = False
    mmproj_on_host: bool = False
    mtp: bool = False
    drafted: int = 3
    share: float = 1.0
    """The part of the layers that goes to the GPU that is meant, where several are named."""
    learned: tuple[Learned, ...] = Field(default=(), exclude=True, repr=False)


@dataclass(frozen=True, slots=True)
class Part:
    """What one thing takes on the GPU, in MiB."""

    name: str
    mib: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """All parts of one load on so many GPUs together."""

    parts: tuple[Part, ...]
    learned: bool
    """Whether the compute buffers were seen in an earlier run, and not guessed."""
    share: float = 1.0

    @property
    def mib(self) -> int:
        """All of it."""
        return round(sum(part.mib for part in self.parts))

    def words(self) -> str:
        """The parts for people: "weights 14.6 GiB + KV 4.0 GiB + …"."""
        told = [f"{part.name} {memory(round(part.mib))}" for part in self.parts if part.mib >= 1]
        part = f"{self.share:.0%} of the layers: " if self.share < 1 else ""
        return part + " + ".join(told)


@dataclass(frozen=True, slots=True)
class Models:
    """The headers behind one load."""

    model: ModelFact
    draft: ModelFact | None = None
    projector_mib: float = 0.0
    adapters_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class Unread:
    """Why no estimate can be made."""

    why: str


def read(load: Load, box: Box, time: Deadline, gpus: int = 1) -> Models | Unread:
    """The headers that an estimate needs."""
    if load.untold:
        return Unread(load.untold)
    several = gpus > 1 or load.share < 1
    if several and any(place == GPU for _, place in (*load.overrides, *load.draft_overrides)):
        return Unread("tensors are told to go to one of several GPUs")
    model = box.model(files_of(load.model), within=time.left(), overrides=load.overrides)
    if model.fault or model.bad:
        return Unread(f"{load.model}: {model.said or model.bad or model.fault}")
    draft: ModelFact | None = None
    if load.draft is not None:
        paths = files_of(load.draft)
        draft = box.model(paths, within=time.left(), overrides=load.draft_overrides)
        if draft.fault or draft.bad:
            return Unread(f"{load.draft}: {draft.said or draft.bad or draft.fault}")
    sizes = []
    projector = (load.mmproj,) if load.mmproj is not None and not load.mmproj_on_host else ()
    for paths in (projector, load.adapters):
        facts = box.files(paths, within=time.left()) if paths else ()
        if bad := next((fact for fact in facts if fact.fault), None):
            return Unread(f"{bad.path}: {bad.said or bad.fault}")
        sizes.append(sum(fact.size for fact in facts) / _MIB)
    return Models(model, draft, *sizes)


def estimate(load: Load, models: Models, gpus: int = 1) -> Estimate:
    """What this load takes on so many GPUs together, split by layers."""
    shape = Shape(models.model)
    where = _cells(load, shape)
    layers = _cached_layers(load, shape)
    window = shape.window_cells(where, load.batch, full=load.full_window)
    parts = [
        Part("weights", shape.weights(load.on_gpu, mtp=load.mtp) / _MIB),
        Part("KV", shape.cache(layers, where, (load.key, load.value), window) / _MIB),
    ]
    if not load.cache_on_host:
        copies = load.drafted if load.mtp else 0
        parts.append(Part("state", shape.state(load.slots, copies) / _MIB))
    parts += _drafting(load, models, shape, where)
    parts.append(Part("projector", models.projector_mib))
    parts.append(Part("adapters", models.adapters_mib))
    parts = [replace(part, mib=part.mib * load.share) for part in parts]
    compute, learned = _compute(load, models, shape, where)
    parts.append(Part("compute", compute * gpus))
    parts.append(Part("driver", float(DRIVER_MIB * gpus)))
    return Estimate(tuple(parts), learned, load.share)


def _cells(load: Load, shape: Shape) -> Cells:
    return cells(load.context or shape.trained, load.slots, unified=load.unified)


def _cached_layers(load: Load, shape: Shape) -> range:
    """The layers whose cache goes to the GPU: it lies where the layer itself lies."""
    return range(0) if load.cache_on_host else _last(shape.layers, load.on_gpu)


def _last(layers: int, on_gpu: int | None) -> range:
    """The layers that go to the GPU: the last ones, and before them all the output."""
    return range(0 if on_gpu is None else max(layers + 1 - on_gpu, 0), layers)


def _drafting(load: Load, models: Models, shape: Shape, where: Cells) -> Iterator[Part]:
    """The draft model, or the context of the MTP layers: full length, with types of their own."""
    kinds = (load.draft_key, load.draft_value)
    if models.draft is not None:
        small = Shape(models.draft)
        yield Part("draft weights", small.weights(load.draft_on_gpu, mtp=True) / _MIB)
        layers = _last(small.layers + small.mtp, load.draft_on_gpu)
        yield Part("draft KV", small.cache(layers, where, kinds, where.each) / _MIB)
    elif load.mtp:
        layers = range(shape.layers, shape.layers + shape.mtp)
        yield Part("MTP KV", shape.cache(layers, where, kinds, where.each) / _MIB)


def _compute(load: Load, models: Models, shape: Shape, where: Cells) -> tuple[float, bool]:
    """MiB of compute buffers on one GPU: learned from an alike start, else guessed."""
    contexts = 2 if load.mtp or models.draft is not None else 1
    guess = shape.compute(where, load.batch, flash=load.flash)
    if contexts == 2:
        guess += Shape(models.draft or models.model).compute(where, load.batch, flash=load.flash)
    width = models.model.keys.get(f"{shape.architecture}.embedding_length")
    alike = [
        one
        for one in load.learned
        if (one.architecture, one.layers, one.width) == (shape.architecture, shape.layers, width)
        and (one.batch, one.contexts) == (load.batch, contexts)
        and one.cells > 0
    ]
    if not alike:
        return guess / _MIB * _SAFETY, False
    nearest = min(alike, key=lambda one: abs(one.cells - where.each))
    # more cells make the mask wider; fewer are not counted on
    more = max(0, where.each - nearest.cells) * load.batch * 2 * contexts / _MIB
    return nearest.compute_mib * _SAFETY + more, True


def ways(load: Load, models: Models, gpus: int, room_mib: int) -> tuple[str, ...]:
    """What would make it fit into so much room: what is enough first, and how much each saves."""
    now = estimate(load, models, gpus).mib
    enough: list[str] = []
    too_little: list[str] = []
    for what, flags, changed, without in _changes(load, models):
        then = estimate(changed, without, gpus).mib
        if then < now:
            said = f"{what} saves {memory(now - then)} ({flags})"
            (enough if then <= room_mib else too_little).append(said)
    most = _most_context(load, models, gpus, room_mib)
    if most:
        each = most if load.unified else most // load.slots
        enough.append(f"a context of {each:,} fits")
    return (*enough, *(f"{said}, not enough" for said in too_little))


def _changes(load: Load, models: Models) -> Iterator[tuple[str, str, Load, Models]]:
    """What saves memory: in words, as flags, and the load with it; what costs least comes first."""
    if (load.mtp or models.draft) and load.draft_key == "f16":
        small = load.model_copy(update={"draft_key": "q4_0", "draft_value": "q4_0"})
        yield "q4_0 KV of the draft", "-ctkd q4_0 -ctvd q4_0", small, models
    for kind in ("q8_0", "q4_0"):
        if load.key in ("f16", "bf16", "f32") or (load.key == "q8_0" and kind == "q4_0"):
            changed = load.model_copy(update={"key": kind, "value": kind})
            yield f"{kind} KV", f"-ctk {kind} -ctv {kind}", changed, models
    if load.slots > 1:
        each = load.context if load.unified else load.context // load.slots
        one = load.model_copy(update={"slots": 1, "unified": False, "context": each})
        yield f"one slot instead of {load.slots}", f"-np 1 -c {each}", one, models
    if models.projector_mib:
        yield "no vision projector", "drop --mmproj", load, replace(models, projector_mib=0.0)


def _most_context(load: Load, models: Models, gpus: int, room_mib: int) -> int:
    """The longest context that fits as the rest is, in tokens; 0 where none is worth asking for."""
    longest = load.context or Shape(models.model).trained
    low, high = 0, longest // _STEP
    while low < high:
        middle = (low + high + 1) // 2
        asked = load.model_copy(update={"context": middle * _STEP})
        if estimate(asked, models, gpus).mib <= room_mib:
            low = middle
        else:
            high = middle - 1
    return low * _STEP if low * _STEP < longest else 0


def heaviest(
    loads: Sequence[Load], box: Box, gpus: int, time: Deadline
) -> tuple[Load, Models, Estimate] | Unread:
    """The load that takes most: the arms of a job come one after the other."""
    found: list[tuple[Load, Models, Estimate]] = []
    for load in loads:
        models = read(load, box, time, gpus)
        if isinstance(models, Unread):
            return models
        found.append((load, models, estimate(load, models, gpus)))
    return max(found, key=lambda one: one[2].mib)
