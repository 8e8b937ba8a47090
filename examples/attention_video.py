"""Film a trained policy with its attention drawn over the frames.

entity-encoder train Entity/FloorIsLava-v0 --total-steps 80_000 --run-dir runs/lava
python examples/attention_video.py runs/lava                     # runs/lava/attention.gif
python examples/attention_video.py runs/lava --maps each --out lava.gif   # each layer and head

A line runs from the entity that looks to the one it looks at, in the colour of the group that
looks, the stronger the more weight it has. Beside the frame stand the value estimate and how
likely each action is.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from torch import Tensor

from entity_encoder.agents import EntityPolicy, Environments, load_checkpoint, load_policy
from entity_encoder.agents.attention import draw_sheet, look_at, visible_scene
from entity_encoder.agents.cli.defaults import find_checkpoint
from entity_encoder.agents.recording import make_visible, record
from entity_encoder.agents.video import save_video


class AttentionCamera:
    """Draw each observation as the policy sees it.

    Args:
        policy: The policy that plays.
        maps: "each" layer and head in a frame of its own, or one frame with their "mean".
    """

    def __init__(self, policy: EntityPolicy, maps: Literal["each", "mean"]) -> None:
        self.policy = policy
        self.maps = maps
        self.memory: Tensor | None = None  # of a recurrent policy

    def __call__(self, envs: Environments) -> np.ndarray:
        """Return the picture of what the policy is about to act on, (height, width, 3)."""
        look = look_at(
            self.policy,
            envs.observation,
            state=self.memory,
            begins=envs.begins,
            active=~envs.ended,
            action_names=getattr(envs.env.unwrapped, "action_names", ()),
        )
        self.memory = look.state
        frame, places = visible_scene(envs)
        return np.asarray(draw_sheet(look, frame, places, maps=self.maps))


def main(arguments: Sequence[str] | None = None) -> Path:
    """Play, draw, and return the file that was written."""
    parser = argparse.ArgumentParser(description="Film a policy with its attention.")
    parser.add_argument("run", help="run directory, or a checkpoint in one")
    parser.add_argument("--out", help="a .gif or .mp4; default: attention.gif in the run directory")
    parser.add_argument("--maps", choices=("mean", "each"), default="mean")
    parser.add_argument("--episodes", type=int, default=3)
    parser.add_argument("--max-frames", type=int, default=150)
    parser.add_argument("--fps", type=float, help="default: the environment's own")
    args = parser.parse_args(arguments)

    saved = load_checkpoint(find_checkpoint(args.run))
    policy = load_policy(saved)
    made = saved.about["env"]  # what it was trained on
    envs = make_visible(made["id"], made["kwargs"], policy=policy)
    camera = AttentionCamera(policy, args.maps)
    frames, result = record(
        policy, envs, episodes=args.episodes, max_frames=args.max_frames, draw=camera
    )
    fps = args.fps or float(envs.env.metadata.get("render_fps", 15))
    envs.close()
    path = save_video(args.out or Path(args.run) / "attention.gif", _same_size(frames), fps=fps)
    print(f"{path}: {len(frames)} frames" + (f", return {result.returns}" if result else ""))
    return path


def _same_size(frames: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Pad frames with white: the panel beside grows with the number of actions."""
    height = max(frame.shape[0] for frame in frames)
    width = max(frame.shape[1] for frame in frames)
    padded = []
    for frame in frames:
        below, beside = height - frame.shape[0], width - frame.shape[1]
        padded.append(np.pad(frame, ((0, below), (0, beside), (0, 0)), constant_values=255))
    return padded


if __name__ == "__main__":
    main()
