"""What the pages take from the code when they are built, so that it cannot drift.

A page holds `<!-- table: NAME -->` where the text of `TABLES[NAME]` shall stand, and
`<!-- api: MODULE -->` where every public name of a module shall be described.
"""

from __future__ import annotations

import ast
import dataclasses
import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["TABLES", "on_page_markdown"]

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"<!-- table: ([\w-]+) -->")
API = re.compile(r"<!-- api: ([\w.]+) -->")


def settings() -> str:
    """List every setting of `PPOConfig`."""
    from entity_encoder.agents import PPOConfig

    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for field in dataclasses.fields(PPOConfig):
        text = field.metadata["help"].replace("|", "\\|").replace("<", "&lt;")
        choices = field.metadata.get("choices")
        text += f"; one of {', '.join(choices)}" if choices else ""
        rows.append(f"| `{field.name}` | `{field.default}` | {text} |")
    return "\n".join(rows)


def tags() -> str:
    """List every number in TensorBoard."""
    from entity_encoder.agents.monitor.tags import tag_table

    # Python-Markdown shows the backslash of an escaped bar within code.
    return re.sub(
        r"`([^`\n]*\\\|[^`\n]*)`",
        lambda found: f"<code>{html.escape(found[1]).replace(chr(92) + '|', '&#124;')}</code>",
        tag_table(),
    )


def tasks() -> str:
    """List the tasks with what they ask for."""
    from entity_encoder.agents.cli.tasks import describe_task, list_tasks

    rows = ["| id | what to do | an action | entities | return: random, script |"]
    rows.append("|---|---|---|---|---|")
    for name in list_tasks():
        task = describe_task(name)
        groups = ", ".join(f"{slots} {group}" for group, slots in task.groups.items())
        known = f"{task.random_return:.3g}, {task.reference_return:.3g}"
        rows.append(f"| `{name}` | {task.description} | {task.actions} | {groups} | {known} |")
    return "\n".join(rows)


def task_pages() -> str:
    """Show the page of every task, its docstring."""
    from entity_encoder.envs import TASKS, find_task

    made = (find_task(name) for name in sorted(TASKS))
    return "\n\n".join(
        f"::: {task.__module__}.{task.__qualname__}\n    options:\n      members: false"
        for task in made
    )


#: Tables that benchmarks write into `docs/results`: heading, and how to read it.
MEASURED = {
    "encoder": (
        "The encoder",
        (
            "Median time of a pass over the same sets. *floors*: this time as a multiple of the "
            "necessary matrix products on present entities alone. The columns of the peers: how "
            "many times as long they take. *MiB*: the most that tensors held."
        ),
    ),
    "ppo": (
        "Training",
        (
            "One task with 16 slots, about half of them filled, the same network, equal losses and "
            "gradients; environment steps. *ours is*: how many times as many steps per CPU-second."
        ),
    ),
    "envs": (
        "Environments",
        (
            "Steps of one environment, random actions. *single environments*: one by one in "
            "gymnasium's `SyncVectorEnv`, of the same class or, where it says so, written plainly."
        ),
    ),
}


def result(name: str) -> str:
    """Return a table that a benchmark wrote; nothing before it did."""
    file = ROOT / f"docs/results/{name}.md"
    return file.read_text().strip() if file.exists() else ""


def speed() -> str:
    """Show what the benchmarks measured, each table with its explanation."""
    parts = []
    for name, (title, text) in MEASURED.items():
        if table := result(name):
            parts.append(f"## {title}\n\n{text}\n\n{table}")
    return "\n\n".join(parts)


TABLES: dict[str, Callable[[], str]] = {
    "integrations": lambda: result("integrations"),
    "settings": settings,
    "speed": speed,
    "tags": tags,
    "task-pages": task_pages,
    "tasks": tasks,
}


def public_names(module: str) -> list[str]:
    """Read `__all__` of a module, whose own requirements may be missing here.

    Raises:
        ValueError: When it has none.
    """
    place = ROOT / module.replace(".", "/")
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            return sorted(name for name in names if not name.startswith("_"))
    raise ValueError(f"{module} must have __all__ to be described, got none in {file}")


def api(module: str) -> str:
    """Describe every public name of a module."""
    return "\n\n".join(f"::: {module}.{name}" for name in public_names(module))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the tables and descriptions of a page; called by mkdocs.

    Raises:
        KeyError: For a table that does not exist.
    """
    markdown = TABLE.sub(lambda found: TABLES[found[1]](), markdown)
    return API.sub(lambda found: api(found[1]), markdown)
