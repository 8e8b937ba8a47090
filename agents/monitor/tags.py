"""Name every number that training logs: tag, meaning, formula.

TensorBoard groups charts by what stands before the first slash, so the groups here are the
sections of its page. The x axis of every chart is the number of environment steps that were
learned from; rows that only reset an environment do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "RESULTS",
    "SCALARS",
    "ScalarTag",
    "custom_layout",
    "entity_count_tag",
    "is_known_tag",
    "tag_table",
]


@dataclass(frozen=True)
class ScalarTag:
    """One logged number.

    Args:
        tag: The name in TensorBoard. A tag ending in ``/*`` stands for a family.
        meaning: What the number tells, in one line.
        formula: How it is computed, in the symbols of the PPO page.
    """

    tag: str
    meaning: str
    formula: str


SCALARS: tuple[ScalarTag, ...] = (
    # --- what the policy achieves while it explores ------------------------------------------
    ScalarTag(
        "episode/return",
        "mean return of the episodes that ended since the last point",
        "mean_i sum_t r[i,t], undiscounted",
    ),
    ScalarTag("episode/return_sd", "their standard deviation", "sd_i sum_t r[i,t]"),
    ScalarTag("episode/length", "mean length of the same episodes, in steps", "mean_i T[i]"),
    ScalarTag(
        "episode/score",
        "mean score of finished episodes: 0 = random, 1 = the scripted reference",
        "mean_i (return[i] - random) / (reference - random)",
    ),
    ScalarTag(
        "episode/success", "share of them that the task calls a success", "mean_i success[i]"
    ),
    ScalarTag("episode/ended", "how many episodes ended since the last point", "count"),
    ScalarTag(
        "return_by_entities/*",
        "mean return of the episodes that began with this many entities",
        "mean_i return[i] over episodes in the bin",
    ),
    # --- what it achieves when it is asked to do its best ------------------------------------
    ScalarTag("evaluation/return", "mean return of evaluation episodes", "mean_i return[i]"),
    ScalarTag(
        "evaluation/return_low", "lower end of its 95 % interval", "mean - t(.975) sd / sqrt(n)"
    ),
    ScalarTag(
        "evaluation/return_high", "upper end of its 95 % interval", "mean + t(.975) sd / sqrt(n)"
    ),
    ScalarTag("evaluation/length", "mean length of evaluation episodes", "mean_i T[i]"),
    ScalarTag("evaluation/score", "mean score of evaluation episodes", "as episode/score"),
    ScalarTag("evaluation/success", "share of successful evaluation episodes", "mean_i success[i]"),
    # --- what is minimised -------------------------------------------------------------------
    ScalarTag(
        "loss/policy",
        "clipped surrogate, to be minimised",
        "mean max(-A rho, -A clip(rho, 1 - eps, 1 + eps))",
    ),
    ScalarTag(
        "loss/value",
        "value error, in the unit of the scaled returns squared",
        "1/2 mean max((V - R)^2, (V_old + clip(V - V_old, -eps, eps) - R)^2)",
    ),
    ScalarTag("loss/total", "what the optimiser sees", "policy + c_v value - c_e entropy"),
    # --- is the update healthy? --------------------------------------------------------------
    ScalarTag("policy/entropy", "mean entropy of the action distribution, nats", "mean H(pi(.|s))"),
    ScalarTag(
        "policy/kl",
        "distance from the policy that acted; never negative",
        "mean (rho - 1) - log rho   (k3)",
    ),
    ScalarTag("policy/clip_fraction", "share of samples that were clipped", "mean |rho - 1| > eps"),
    ScalarTag(
        "policy/first_ratio_error",
        "how far the very first ratio of an update is from 1; above 1e-5 is a bug",
        "max |rho - 1| in the first minibatch",
    ),
    ScalarTag(
        "value/explained_variance",
        "1 = the critic predicts the return, 0 = no better than a constant",
        "1 - var(R - V) / var(R)",
    ),
    ScalarTag("value/mean", "mean value estimate in the rollout", "mean V(s)"),
    ScalarTag(
        "optimiser/gradient_norm",
        "norm of the gradient before clipping, mean over minibatches",
        "mean ||g||_2",
    ),
    ScalarTag("optimiser/learning_rate", "step size in force", "schedule(progress)"),
    ScalarTag("optimiser/clip_range", "eps in force", "schedule(progress)"),
    ScalarTag("optimiser/entropy_coefficient", "c_e in force", "schedule(progress)"),
    ScalarTag("optimiser/epochs", "passes made before the KL limit stopped the update", "count"),
    # --- what it costs -----------------------------------------------------------------------
    ScalarTag("speed/steps_per_second", "environment steps per second of wall time", "steps / s"),
    ScalarTag(
        "speed/entities_per_second",
        "present entities encoded per second of wall time",
        "entities / s",
    ),
    ScalarTag(
        "entities/present", "mean number of present entities per observation", "mean sum_n m[n]"
    ),
    ScalarTag("time/environment", "share of wall time spent stepping", "t_env / t"),
    ScalarTag("time/inference", "share of wall time spent choosing actions", "t_inference / t"),
    ScalarTag("time/update", "share of wall time spent learning", "t_update / t"),
    ScalarTag(
        "self_play/rating",
        "Elo rating of the newest version of the policy in self-play; the script has 1000",
        "1000 + 400 log10(strength)",
    ),
    # --- beside histograms -------------------------------------------------------------------
    ScalarTag(
        "non_finite/*", "NaN and infinite values left out of the histogram of that name", "count"
    ),
)


#: What the HPARAMS tab shows beside the settings of a run.
RESULTS = (
    "episode/return",
    "episode/score",
    "evaluation/return",
    "evaluation/score",
    "speed/steps_per_second",
)


def is_known_tag(tag: str) -> bool:
    """Tell whether a tag, or its family, stands in the table."""
    return any(
        tag == known.tag or (known.tag.endswith("/*") and tag.startswith(known.tag[:-1]))
        for known in SCALARS
    )


def entity_count_tag(low: int, high: int | None = None) -> str:
    """Name the return of episodes that begin with ``low`` to ``high`` entities.

    Numbers are padded so that TensorBoard's alphabetical order is the numerical one.
    """
    return f"return_by_entities/{low:03d}" + ("" if high in (None, low) else f"-{high:03d}")


def tag_table(tags: Iterable[ScalarTag] = SCALARS) -> str:
    """Write the table in Markdown, for the documentation and the text tab."""
    rows = [f"| `{t.tag}` | {t.meaning} | {_escape(t.formula)} |" for t in tags]
    return "\n".join(["| tag | meaning | formula |", "|---|---|---|", *rows])


def custom_layout() -> dict[str, dict[str, tuple[str, list[str]]]]:
    """Arrange the charts that answer "does it learn, and is it healthy?" on one page.

    Returns:
        ``{section: {chart: (kind, tags)}}`` for TensorBoard's custom scalars tab.
    """
    return {
        "Does it learn?": {
            "return": _lines("episode/return", "evaluation/return"),
            "score": _lines("episode/score", "evaluation/score"),
            "evaluation with its 95 % interval": (
                "Margin",
                ["evaluation/return", "evaluation/return_low", "evaluation/return_high"],
            ),
            "return by number of entities": ("Multiline", ["return_by_entities/.*"]),
            "episode length": _lines("episode/length", "evaluation/length"),
        },
        "Is the update healthy?": {
            "KL": _lines("policy/kl"),
            "clip fraction": _lines("policy/clip_fraction"),
            "entropy": _lines("policy/entropy"),
            "explained variance": _lines("value/explained_variance"),
            "losses": _lines("loss/policy", "loss/value"),
            "gradient norm": _lines("optimiser/gradient_norm"),
        },
        "What does it cost?": {
            "steps per second": _lines("speed/steps_per_second"),
            "entities per second": _lines("speed/entities_per_second"),
            "share of time": _lines("time/environment", "time/inference", "time/update"),
        },
    }


def _lines(*tags: str) -> tuple[str, list[str]]:
    """Draw exactly these tags: TensorBoard reads them as regular expressions, so anchor them."""
    return "Multiline", [f"^{tag}$" for tag in tags]


def _escape(formula: str) -> str:
    return "`" + formula.replace("|", "\\|") + "`"
