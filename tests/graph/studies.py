"""Small studies, put together from IR values, that tests lower, plan and execute."""

from __future__ import annotations

from typing import Any

from reodsl.graph.task import Graph
from reodsl.ir import Spec
from reodsl.ir.data import Data, File, TaskData
from reodsl.ir.expression import Correct
from reodsl.ir.model import Architecture, Folder, Forcing, Model, WordTokenizer
from reodsl.ir.reward import Budgets, OracleBudgets, QuestionBudgets, Reward
from reodsl.ir.study import Arm, Benchmark, Frontier, Score, Study, Suite
from reodsl.ir.task import FoldTask
from reodsl.ir.training import Experiment, FromModel, FromTraining, Optimizer, Sampling, Sft, Stage, Start
from tests.methods import dense, plain_ppo

TOKENIZER = WordTokenizer(words=("0", "1", "+1"), eos="<eos>", pad="<pad>")
DRAWN = Architecture(
    family="qwen3", hidden=8, layers=1, heads=2, kv_heads=1, head_dim=4, intermediate=16, tokenizer=TOKENIZER
)
FORCING = Forcing(name="answer", text="</think>", answer_tokens=1)
CHAIN = FoldTask(
    modulus=2,
    values=("0", "1"),
    operations=("+1",),
    labels=("a", "b"),
    question="{start} {steps} ?",
    step="{label} {op}",
    length=(1, 2),
)


def model(name: str = "tiny", source: Any = DRAWN, **more: Any) -> Model:
    return Model(name=name, source=source, context=64, **more)


def questions(name: str = "chain", seed: int = 0, count: int = 10, **more: Any) -> Data:
    return Data(name=name, sources=(TaskData(task=CHAIN, count=count, seed=seed),), **more)


def file_data(path: str, name: str = "filed") -> Data:
    return Data(name=name, sources=(File(path=path),))


def suite(name: str = "suite", reg_to: int = 16, samples: int = 2, **more: Any) -> Suite:
    bench = Benchmark(name="easy", data=questions("held_out", seed=1))
    settings: dict[str, Any] = {"grid": (0, 4, 8, 16), "forcing": FORCING, "rollout": Sampling(max_tokens=16)}
    return Suite(name=name, benchmarks=(bench,), samples=samples, reg_to=reg_to, **settings | more)


def sft(name: str = "", steps: int = 3, lr: float = 1e-3, data: Data | None = None, **more: Any) -> Stage:
    optim = Optimizer(algorithm="adamw", lr=lr)
    method = Sft(batch=2, max_tokens=16)
    return Stage(name=name, method=method, data=data or questions(), optim=optim, steps=steps, **more)


def ppo(reward: Reward, name: str = "", steps: int = 2, references: int = 0, **more: Any) -> Stage:
    method = plain_ppo(
        reward, tokens=16, max_prompt=8, prompts=2, rollouts=4, forcing=FORCING, reference_samples=references
    )
    optim = more.pop("optim", Optimizer(algorithm="adam", lr=1e-4))
    return Stage(name=name, method=method, data=questions("train"), optim=optim, steps=steps, **more)


def outcome(name: str = "outcome") -> Reward:
    return Reward(name=name, outcome=Correct(of="y"))


def budgets(*at: int) -> Reward:
    return dense(Budgets(budgets=at, l_max=16))


def base(name: str = "overthinker", **more: Any) -> Experiment:
    return Experiment(name=name, start=FromModel(model=model()), stages=(sft(**more),))


def end(experiment: Experiment, stage: int | None = None) -> FromTraining:
    return FromTraining(experiment=experiment, stage=len(experiment.stages) - 1 if stage is None else stage)


def trained(name: str, *stages: Stage, start: Start | None = None) -> Experiment:
    return Experiment(name=name, start=start or end(base()), stages=stages)


def arm(name: str, checkpoint: Start | Experiment, on: Suite | None = None) -> Arm:
    start = end(checkpoint) if isinstance(checkpoint, Experiment) else checkpoint
    return Arm(name=name, checkpoint=start, suite=on or suite())


def study(*arms: Arm, seeds: tuple[int, ...] = (1,), name: str = "mini", of: tuple[str, ...] = ()) -> Study:
    edge = Frontier(name="edge", of=of or (arms[0].name,), to=16)
    score = Score(frontier="edge", to=16, relative_to=arms[0].name)
    return Study(name=name, seeds=seeds, arms=arms, frontiers=(edge,), score=score)


def spec(*arms: Arm, **more: Any) -> Spec:
    return Spec(study=study(*arms, **more))


def four(seeds: tuple[int, ...] = (1,)) -> Spec:
    """Base, one outcome arm, one dense arm, one with two stages whose first is an arm too."""
    vanilla = trained("vanilla", ppo(outcome()))
    reo = trained("reo_exp", ppo(budgets(4, 8)))
    shrink = trained("shrink", ppo(outcome(), "long", steps=7), ppo(outcome(), "short", steps=1))
    arms = (
        arm("base", base()),
        arm("vanilla", vanilla),
        arm("reo_exp", reo),
        arm("shrink", shrink),
        arm("shrink_long", end(shrink, 0)),
    )
    return spec(*arms, seeds=seeds, of=("base", "vanilla", "shrink"))


def oracle() -> Reward:
    return dense(OracleBudgets(frontier="edge", n=2, l_max=16))


def question_wise(*rollouts: str) -> Reward:
    return dense(QuestionBudgets(rollouts=rollouts, l_max=16))


def downloaded(path: str = "weights") -> FromModel:
    return FromModel(model=model("given", Folder(path=path)))


def below(graph: Graph, names: set[str]) -> set[str]:
    """Tasks and all that read them, directly or not."""
    reached, readers = set(names), graph.readers()
    for task in graph.tasks:
        if task.id in reached:
            reached.update(readers[task.id])
    return reached
