"""List the registered tasks, or show the page of one."""

from __future__ import annotations

import argparse
import json
import textwrap

from entity_encoder.agents.cli.tasks import TaskInfo, describe_task, list_tasks, task_page

__all__ = ["add_options", "run"]

EXAMPLES = """examples:
  entity-encoder envs
  entity-encoder envs Entity/Minefield-v0           rules, observation, reward, options
  entity-encoder envs --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("env", nargs="?", help="show the whole description of this task")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the list."""
    if options.env:
        return _show(options.env, as_json=options.json)
    tasks, missing = _describe_all()
    if options.json:
        print(json.dumps([task.to_dict() for task in tasks], indent=1))
        return 0
    for task in tasks:
        print(_entry(task))
    if missing:
        print("not installed:")
    for name, reason in missing.items():
        print(f"  {name}: {reason}")
    return 0


def _describe_all() -> tuple[list[TaskInfo], dict[str, str]]:
    """Describe what can be made here; say why about the rest."""
    tasks, missing = [], {}
    for name in list_tasks():
        try:
            tasks.append(describe_task(name))
        except ImportError as error:
            missing[name] = str(error)
    return tasks, missing


def _show(env: str, *, as_json: bool) -> int:
    task = describe_task(env)
    if as_json:
        print(json.dumps({**task.to_dict(), "page": task_page(env)}, indent=1))
    else:
        print(f"{_entry(task)}\n\n{textwrap.indent(task_page(env), '  ')}")
    return 0


def _entry(task: TaskInfo) -> str:
    groups = ", ".join(f"{slots} {name}" for name, slots in task.groups.items())
    lines = [task.id, f"  {task.description}", f"  actions: {task.actions}; entities: {groups}"]
    if task.reference_return is not None:
        lines.append(
            f"  return: random {task.random_return:g}, scripted reference {task.reference_return:g}"
        )
    return "\n".join(lines)
