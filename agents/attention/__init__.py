"""What a policy looks at: attention maps, value and action probabilities, as pictures."""

from entity_encoder.agents.attention.actions import ActionBar, action_bars
from entity_encoder.agents.attention.look import Look, look_at
from entity_encoder.agents.attention.matrix import draw_matrix
from entity_encoder.agents.attention.overlay import draw_overlay
from entity_encoder.agents.attention.sheet import draw_sheet, visible_scene

__all__ = [
    "ActionBar",
    "Look",
    "action_bars",
    "draw_matrix",
    "draw_overlay",
    "draw_sheet",
    "look_at",
    "visible_scene",
]
