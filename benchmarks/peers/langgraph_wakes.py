"""LangGraph with its SQLite checkpointer: an agent whose threads wait for a tool, are woken by its result, ask the model, and wait again.

The graph is the smallest one that does it: a node that asks the model, and one that waits for the result of the call the model made, by an
interrupt. A wake is one resume: the thread is loaded, the result is saved, the model is asked, its reply with the next call is saved, and
the thread waits again. `durability="sync"` has LangGraph save each step before the next one begins, as rapkit does.
"""

import asyncio
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from benchmarks.figures import Figures

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

WINDOW = 10
"""How much of the conversation is kept: as much as rapkit shows the model, at least."""


def _appended(before: list[str], new: list[str]) -> list[str]:
    return [*before, *new][-WINDOW:]


class State(TypedDict):
    """The conversation, as much of it as a model is shown."""

    said: Annotated[list[str], _appended]


async def _model(state: State) -> dict[str, list[str]]:
    return {"said": ["call next()"]}


async def _tool(state: State) -> dict[str, list[str]]:
    return {"said": [interrupt("next()")]}


async def measure(folder: Path, seconds: float, threads: int, at_once: int) -> Figures:
    """Wake so many threads in turn for so long, a number of them at once."""
    graph = StateGraph(State)
    graph.add_node("model", _model)
    graph.add_node("tool", _tool)
    graph.add_edge(START, "model")
    graph.add_edge("model", "tool")
    graph.add_edge("tool", "model")
    async with AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
        app = graph.compile(checkpointer=saver)
        configs: list[RunnableConfig] = [{"configurable": {"thread_id": f"t{number}"}} for number in range(threads)]
        for config in configs:
            await app.ainvoke({"said": ["Begin."]}, config, durability="sync")
        figures = Figures()
        turns = itertools.cycle(configs)
        begun = time.perf_counter()

        async def wake_some() -> None:
            while time.perf_counter() - begun < seconds:
                await app.ainvoke(Command(resume="42"), next(turns), durability="sync")
                figures.calls += 1

        await asyncio.gather(*(wake_some() for _ in range(at_once)))
        figures.seconds = time.perf_counter() - begun
    return figures
